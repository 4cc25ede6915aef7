// The common calls without a binding's overhead: two C-contiguous arrays of one known dtype, everything else
// default. Whatever does not fit is NotImplemented, and the general way says what is wrong with it.
#include <array>

#include "popsr/bindings/gil.h"
#include "popsr/bindings/records.h"
#include "popsr/bindings/sr/arrays.h"
#include "popsr/kernels/float_env.h"
#include "popsr/kernels/loader.h"
#include "popsr/kernels/noise.h"

namespace popsr::bindings {
namespace {

/// From here on other Python threads may run meanwhile.
constexpr std::int64_t kReleaseFrom = 1 << 13;

// Dtype objects by format; the module's, never freed.
std::array<PyObject*, kNumFloatFormats> known_dtypes = {};
PyTypeObject* key_type = nullptr;

py::detail::PyArray_Proxy* as_array(PyObject* object) {
  const auto& api = py::detail::npy_api::get();
  return Py_TYPE(object) == api.PyArray_Type_ ? reinterpret_cast<py::detail::PyArray_Proxy*>(object)
                                              : nullptr;
}

bool contiguous(const py::detail::PyArray_Proxy& array) {
  constexpr int kNeeded =
      py::detail::npy_api::NPY_ARRAY_C_CONTIGUOUS_ | py::detail::npy_api::NPY_ARRAY_ALIGNED_;
  return (array.flags & kNeeded) == kNeeded;
}

bool same_shape(const py::detail::PyArray_Proxy& a, const py::detail::PyArray_Proxy& b) {
  return a.descr == b.descr && a.nd == b.nd && std::equal(a.dimensions, a.dimensions + a.nd, b.dimensions);
}

/// A call that may go the fast way.
struct FastCall {
  const SrKey* key = nullptr;
  PyObject* out = nullptr;  ///< A new reference.
  FloatFormat format = FloatFormat::kF32;
  std::int64_t n = 1;
  void* data = nullptr;
  const void* x = nullptr;
  const void* y = nullptr;
};

bool touches(const char* a, const char* b, std::int64_t bytes) { return a < b + bytes && b < a + bytes; }

/// False: not of this kind. True with out == nullptr: an exception is set.
bool open(FastCall& call, PyObject* const* args) {
  const auto* x = as_array(args[0]);
  const auto* y = as_array(args[1]);
  if (x == nullptr || y == nullptr || Py_TYPE(args[2]) != key_type) return false;
  if (!contiguous(*x) || !contiguous(*y) || !same_shape(*x, *y)) return false;
  const auto found = std::find(known_dtypes.begin(), known_dtypes.end(), x->descr);
  if (found == known_dtypes.end()) return false;
  call.format = static_cast<FloatFormat>(found - known_dtypes.begin());
  for (int axis = 0; axis < x->nd; ++axis) call.n *= x->dimensions[axis];
  call.x = x->data;
  call.y = y->data;
  call.key = &py::handle(args[2]).cast<const SrKey&>();
  if (args[3] != Py_None) {
    const auto* out = as_array(args[3]);
    if (out == nullptr || !contiguous(*out) || !same_shape(*x, *out)) return false;
    if ((out->flags & py::detail::npy_api::NPY_ARRAY_WRITEABLE_) == 0) return false;
    const std::int64_t bytes = call.n * size_of(call.format);
    if (out->data != x->data && touches(out->data, x->data, bytes)) return false;
    if (out->data != y->data && touches(out->data, y->data, bytes)) return false;
    call.data = out->data;
    call.out = Py_NewRef(args[3]);
    return true;
  }
  if (x->nd == 0) return false;  // NumPy's own functions make a scalar of it
  const auto& api = py::detail::npy_api::get();
  call.out = api.PyArray_NewFromDescr_(api.PyArray_Type_, Py_NewRef(x->descr), x->nd,
                                       reinterpret_cast<const Py_intptr_t*>(x->dimensions), nullptr, nullptr,
                                       0, nullptr);
  if (call.out != nullptr) call.data = as_array(call.out)->data;
  return true;
}

/// Runs `small` on this thread, or `large` without the lock.
template <class Small, class Large>
PyObject* finish(const FastCall& call, const Small& small, const Large& large) {
  try {
    if (call.n < kReleaseFrom) {
      const kernels::FloatEnvironment environment;
      small();
    } else {
      const WithoutGil released;
      large();
    }
  } catch (const std::exception& failure) {  // a thread that cannot be started
    Py_DECREF(call.out);
    PyErr_SetString(PyExc_RuntimeError, failure.what());
    return nullptr;
  }
  return call.out;
}

/// The buffers as arrays of one axis.
std::vector<kernels::SrArray> flat_arrays(const FastCall& call) {
  const std::vector<std::int64_t> strides = {size_of(call.format)};
  const auto flat = [&](const void* data) {
    return kernels::SrArray{static_cast<std::byte*>(const_cast<void*>(data)), call.format, strides};
  };
  return {flat(call.data), flat(call.x), flat(call.y)};
}

PyObject* fast_add(PyObject*, PyObject* const* args, Py_ssize_t count) {
  FastCall fast;
  if (count != 4 || !open(fast, args)) Py_RETURN_NOTIMPLEMENTED;
  if (fast.out == nullptr) return nullptr;
  kernels::SrCall call;
  call.op = kernels::SrOp::kAdd;
  call.rounding.format = call.formats[0] = call.formats[1] = fast.format;
  call.rounding.key = fast.key->words();
  call.n = fast.n;
  call.out = fast.data;
  call.in[0] = fast.x;
  call.in[1] = fast.y;
  return finish(
      fast, [&] { kernels::kernel_table().sr_apply(call); },
      [&] { kernels::sr_run(call, {fast.n}, flat_arrays(fast), 0); });
}

PyObject* fast_add_value(PyObject*, PyObject* const* args, Py_ssize_t count) {
  FastCall fast;
  if (count != 5 || (args[4] != Py_True && args[4] != Py_False) || !open(fast, args))
    Py_RETURN_NOTIMPLEMENTED;
  if (fast.out == nullptr) return nullptr;
  kernels::SrValueAdd call;
  call.format = fast.format;
  call.key = value_key(*fast.key);
  call.biased = args[4] == Py_True;
  call.n = fast.n;
  call.out = fast.data;
  call.x = fast.x;
  call.y = fast.y;
  return finish(
      fast, [&] { kernels::kernel_table().sr_value_add(call); },
      [&] { kernels::sr_run_value(call, {fast.n}, flat_arrays(fast), 0); });
}

void register_dtype(const As<"numpy.dtype[typing.Any]">& dtype, int format) {
  PyObject*& slot = known_dtypes[static_cast<std::size_t>(checked_format(format))];
  Py_XDECREF(slot);
  slot = py::object(dtype).release().ptr();
}

/// pybind11 would parse the arguments in half a microsecond.
template <class Function>
void define_fast(py::module_& m, PyMethodDef& def, const char* name, Function* function) {
  def = {name, reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function)), METH_FASTCALL, nullptr};
  m.attr(name) =
      py::reinterpret_steal<py::object>(PyCFunction_NewEx(&def, nullptr, m.attr("__name__").ptr()));
}

}  // namespace

kernels::NoiseKey value_key(const SrKey& key) {
  return derive_key(kernels::kernel_table(), key.words(), kernels::Domain::kValue, 0);
}

void bind_sr_fast_calls(py::module_& m) {
  static PyMethodDef add_def;
  static PyMethodDef add_value_def;
  key_type = reinterpret_cast<PyTypeObject*>(m.attr("Key").ptr());
  define_fast(m, add_def, "fast_add", fast_add);
  define_fast(m, add_value_def, "fast_add_value", fast_add_value);
  m.def("register_dtype", &register_dtype);
}

}  // namespace popsr::bindings
