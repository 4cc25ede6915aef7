// DLPack capsules, read and made. Their contents are judged in popsr/_support/host/dlpack.py; here they are
// consumed once, and each deleter is called once.
#include <pybind11/numpy.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "popsr/base/error.h"
#include "popsr/bindings/bindings.h"
#include "popsr/bindings/dlpack/structs.h"
#include "popsr/bindings/gil.h"

namespace popsr::bindings {
namespace {

using namespace py::literals;

constexpr const char* kName = "dltensor";
constexpr const char* kUsedName = "used_dltensor";
constexpr const char* kVersionedName = "dltensor_versioned";
constexpr const char* kUsedVersionedName = "used_dltensor_versioned";
constexpr std::int32_t kMaxRank = 64;

/// Keeps the exception that is being raised, if any, while a deleter runs.
class ErrorKept {
 public:
  ErrorKept() { PyErr_Fetch(&type_, &value_, &trace_); }
  ~ErrorKept() { PyErr_Restore(type_, value_, trace_); }
  ErrorKept(const ErrorKept&) = delete;
  ErrorKept& operator=(const ErrorKept&) = delete;

 private:
  PyObject* type_ = nullptr;
  PyObject* value_ = nullptr;
  PyObject* trace_ = nullptr;
};

template <class M>
void call_deleter(M* managed) {
  const ErrorKept kept;
  if (managed->deleter != nullptr) managed->deleter(managed);
}

// Reading

/// The base of arrays on the memory of a capsule: calls the deleter when it goes, once it is armed.
template <class M>
struct Owner {
  explicit Owner(M* m) : managed(m) {}
  ~Owner() {
    if (armed) call_deleter(managed);
  }
  Owner(const Owner&) = delete;
  Owner& operator=(const Owner&) = delete;

  M* managed;
  bool armed = false;
};

/// A capsule that was not consumed yet, and a copy of its contents.
class Capsule {
 public:
  explicit Capsule(py::capsule capsule) : capsule_(std::move(capsule)) {
    if (PyCapsule_IsValid(capsule_.ptr(), kVersionedName) != 0) {
      versioned_ =
          static_cast<dlpack::ManagedVersioned*>(PyCapsule_GetPointer(capsule_.ptr(), kVersionedName));
      version_ = versioned_->version;
      if (version_.major == dlpack::kMajor) flags_ = versioned_->flags, read(versioned_->tensor);
    } else if (PyCapsule_IsValid(capsule_.ptr(), kName) != 0) {
      managed_ = static_cast<dlpack::Managed*>(PyCapsule_GetPointer(capsule_.ptr(), kName));
      read(managed_->tensor);
    } else {
      const bool used = PyCapsule_IsValid(capsule_.ptr(), kUsedName) != 0 ||
                        PyCapsule_IsValid(capsule_.ptr(), kUsedVersionedName) != 0;
      raise<DTypeError>("dlpack: {}, expected a capsule of __dlpack__ that nobody has read",
                        used ? "the capsule was consumed before, got a used one" : "not a DLPack capsule");
    }
  }

  /// An array on the memory; the capsule is consumed, if nothing fails.
  py::array take(const py::dtype& dtype, const std::vector<py::ssize_t>& shape,
                 const std::vector<py::ssize_t>& strides, bool writable) {
    return versioned_ != nullptr
               ? consume(*versioned_, kVersionedName, kUsedVersionedName, dtype, shape, strides, writable)
               : consume(*managed_, kName, kUsedName, dtype, shape, strides, writable);
  }

  py::typing::Dict<py::str, py::object> facts() const {
    py::object version = py::none();
    py::object strides = py::none();
    if (versioned_ != nullptr) version = py::make_tuple(version_.major, version_.minor);
    if (has_strides_) strides = py::tuple(py::cast(strides_));
    return py::dict("version"_a = version, "flags"_a = flags_,
                    "device"_a = py::make_tuple(tensor_.device.type, tensor_.device.id),
                    "code"_a = tensor_.dtype.code, "bits"_a = tensor_.dtype.bits,
                    "lanes"_a = tensor_.dtype.lanes, "shape"_a = py::tuple(py::cast(shape_)),
                    "strides"_a = strides, "byte_offset"_a = tensor_.byte_offset,
                    "address"_a = reinterpret_cast<std::uintptr_t>(tensor_.data));
  }

 private:
  void read(const dlpack::Tensor& tensor) {
    tensor_ = tensor;
    if (tensor.ndim < 0 || tensor.ndim > kMaxRank) {
      raise<ShapeError>("dlpack: wrong number of axes, got {}, expected 0 to {}", tensor.ndim, kMaxRank);
    }
    const auto rank = static_cast<std::size_t>(tensor.ndim);
    if (rank != 0 && tensor.shape == nullptr) {
      raise<ShapeError>("dlpack: no shape, got a null pointer for {} axes, expected extents", rank);
    }
    if (rank != 0) shape_.assign(tensor.shape, tensor.shape + rank);
    has_strides_ = tensor.strides != nullptr;
    if (has_strides_) strides_.assign(tensor.strides, tensor.strides + rank);
  }

  template <class M>
  py::array consume(M& managed, const char* name, const char* used, const py::dtype& dtype,
                    const std::vector<py::ssize_t>& shape, const std::vector<py::ssize_t>& strides,
                    bool writable) {
    if (PyCapsule_IsValid(capsule_.ptr(), name) == 0) {
      raise<DTypeError>("dlpack: the capsule was consumed before, got a used one, expected a new one");
    }
    auto owner = std::make_unique<Owner<M>>(&managed);
    Owner<M>* const owned = owner.get();
    const py::capsule base(owned,
                           [](void* pointer) { std::unique_ptr<Owner<M>>(static_cast<Owner<M>*>(pointer)); });
    static_cast<void>(owner.release());
    // An address of no elements may be null, for which NumPy would take memory of its own.
    static std::byte nothing[16];
    const bool is_null = tensor_.data == nullptr;
    void* const data = is_null ? nothing : static_cast<std::byte*>(tensor_.data) + tensor_.byte_offset;
    py::array array(dtype, shape, strides, data, base);
    if (!writable) array.attr("setflags")("write"_a = false);
    if (PyCapsule_SetName(capsule_.ptr(), used) != 0) throw py::error_already_set();
    owned->armed = true;
    return array;
  }

  py::capsule capsule_;
  dlpack::ManagedVersioned* versioned_ = nullptr;
  dlpack::Managed* managed_ = nullptr;
  dlpack::Version version_ = {};
  dlpack::Tensor tensor_ = {};
  std::uint64_t flags_ = 0;
  std::vector<std::int64_t> shape_;
  std::vector<std::int64_t> strides_;
  bool has_strides_ = false;
};

// Writing

/// Contents of a capsule of popsr: the struct, the memory that it points to, and the array.
template <class M>
struct Exported {
  M managed = {};
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;
  py::object array;
};

/// Consumers call it in any thread, with or without the GIL.
template <class M>
void delete_exported(M* managed) {
  const WithGil gil;
  const ErrorKept kept;
  std::unique_ptr<Exported<M>>(static_cast<Exported<M>*>(managed->context));
}

/// Destructor of capsules that nobody consumed.
template <class M>
void delete_capsule(PyObject* capsule) {
  const char* const name = std::is_same_v<M, dlpack::Managed> ? kName : kVersionedName;
  if (PyCapsule_IsValid(capsule, name) == 0) return;
  call_deleter(static_cast<M*>(PyCapsule_GetPointer(capsule, name)));
}

template <class M>
py::object exported(const py::array& array, dlpack::DataType dtype, std::uint64_t flags,
                    const std::optional<std::vector<std::int64_t>>& shape) {
  auto made = std::make_unique<Exported<M>>();
  made->array = array;
  for (py::ssize_t d = 0; d < array.ndim(); ++d) {
    made->shape.push_back(array.shape(d));
    made->strides.push_back(array.strides(d) / array.itemsize());
  }
  if (shape) {
    made->shape = *shape;
    made->strides.assign(shape->size(), 1);
    for (std::size_t d = shape->size(); d-- > 1;) {
      made->strides[d - 1] = made->strides[d] * std::max<std::int64_t>((*shape)[d], 1);
    }
  }
  dlpack::Tensor& tensor = made->managed.tensor;
  tensor.data = const_cast<void*>(array.data());
  tensor.device = {dlpack::kCpu, 0};
  tensor.ndim = static_cast<std::int32_t>(made->shape.size());
  tensor.dtype = dtype;
  tensor.shape = made->shape.data();
  tensor.strides = made->strides.data();
  made->managed.context = made.get();
  made->managed.deleter = &delete_exported<M>;
  if constexpr (std::is_same_v<M, dlpack::ManagedVersioned>) {
    made->managed.version = {dlpack::kMajor, dlpack::kMinor};
    made->managed.flags = flags;
  }
  const char* const name = std::is_same_v<M, dlpack::Managed> ? kName : kVersionedName;
  auto capsule = py::reinterpret_steal<py::object>(PyCapsule_New(&made->managed, name, &delete_capsule<M>));
  if (!capsule) throw py::error_already_set();
  static_cast<void>(made.release());
  return capsule;
}

/// A capsule on the memory of an array whose strides are multiples of its elements. `flags`: None for the
/// struct without a version. `shape`: of elements that are smaller than a byte, in C order.
py::object make_dlpack(const py::array& array, std::uint8_t code, std::uint8_t bits, std::uint16_t lanes,
                       std::optional<std::uint64_t> flags,
                       const std::optional<std::vector<std::int64_t>>& shape) {
  const dlpack::DataType dtype{code, bits, lanes};
  return flags ? exported<dlpack::ManagedVersioned>(array, dtype, *flags, shape)
               : exported<dlpack::Managed>(array, dtype, 0, shape);
}

}  // namespace

void bind_dlpack(py::module_& m) {
  py::class_<Capsule>(m, "DLPackCapsule")
      .def(py::init<py::capsule>(), "capsule"_a)
      .def("facts", &Capsule::facts)
      .def("take", &Capsule::take, "dtype"_a, "shape"_a, "strides"_a, "writable"_a);
  m.def("make_dlpack", &make_dlpack, "array"_a, "code"_a, "bits"_a, "lanes"_a, "flags"_a,
        "shape"_a = py::none());
}

}  // namespace popsr::bindings
