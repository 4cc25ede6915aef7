// Attributes between Python values and ir/attribute.h, directed by AttrDef::type.
#include "popsr/base/error.h"
#include "popsr/bindings/bindings.h"
#include "popsr/bindings/python_values.h"

namespace popsr::bindings {
namespace {

/// An int, or anything with __index__ (NumPy integers); bools are not integers here.
bool try_int(py::handle value, std::int64_t* result) {
  if (PyBool_Check(value.ptr()) || !PyIndex_Check(value.ptr())) return false;
  *result = PyLong_Check(value.ptr()) ? PyLong_AsLongLong(value.ptr())
                                      : static_cast<std::int64_t>(PyNumber_AsSsize_t(value.ptr(), nullptr));
  if (*result == -1 && PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    return false;
  }
  return true;
}

bool try_float(py::handle value, double* result) {
  if (PyBool_Check(value.ptr()) || PyNumber_Check(value.ptr()) == 0) return false;
  *result = PyFloat_AsDouble(value.ptr());
  if (*result == -1.0 && PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    return false;
  }
  return true;
}

/// A str that has a UTF-8 form.
bool try_string(py::handle value, std::string* result) {
  if (!PyUnicode_Check(value.ptr())) return false;
  Py_ssize_t size = 0;
  const char* utf8 = PyUnicode_AsUTF8AndSize(value.ptr(), &size);
  if (utf8 == nullptr) {
    PyErr_Clear();
    return false;
  }
  result->assign(utf8, static_cast<std::size_t>(size));
  return true;
}

/// A tuple or list whose items `try_item` reads.
template <class T>
bool try_items(py::handle value, bool (*try_item)(py::handle, T*), std::vector<T>* result) {
  if (!PyTuple_Check(value.ptr()) && !PyList_Check(value.ptr())) return false;
  const py::ssize_t size = PySequence_Fast_GET_SIZE(value.ptr());
  PyObject** items = PySequence_Fast_ITEMS(value.ptr());
  result->resize(static_cast<std::size_t>(size));
  for (py::ssize_t i = 0; i < size; ++i) {
    if (!try_item(items[i], &(*result)[static_cast<std::size_t>(i)])) return false;
  }
  return true;
}

/// std::monostate when the value does not fit the type.
Attribute read(const Ir& ir, AttrType type, py::handle value) {
  std::int64_t integer = 0;
  double number = 0;
  std::string text;
  std::vector<std::int64_t> integers;
  std::vector<double> numbers;
  switch (type) {
    case AttrType::kBool:
      return PyBool_Check(value.ptr()) ? Attribute(value.ptr() == Py_True) : Attribute();
    case AttrType::kInt:
      return try_int(value, &integer) ? Attribute(integer) : Attribute();
    case AttrType::kFloat:
      return try_float(value, &number) ? Attribute(number) : Attribute();
    case AttrType::kString:
      return try_string(value, &text) ? Attribute(std::move(text)) : Attribute();
    case AttrType::kInts:
      return try_items(value, try_int, &integers) ? Attribute(std::move(integers)) : Attribute();
    case AttrType::kFloats:
      return try_items(value, try_float, &numbers) ? Attribute(std::move(numbers)) : Attribute();
    case AttrType::kDType:
      return try_string(value, &text) ? Attribute(dtype_from_name(text)) : Attribute();
    case AttrType::kGraph:
      if (!try_int(value, &integer) || integer < 0) return {};
      return checked_graph(ir, GraphId(integer));
    case AttrType::kStream:
      if (!try_int(value, &integer) || integer < 0 || integer >= static_cast<std::int64_t>(ir.num_streams()))
        return {};
      return StreamId(integer);
    case AttrType::kRemote:
      if (!try_int(value, &integer) || integer < 0 || integer >= static_cast<std::int64_t>(ir.num_remotes()))
        return {};
      return RemoteId(integer);
    case AttrType::kGrouping:
      return py::isinstance<ReplicaGrouping>(value) ? Attribute(value.cast<const ReplicaGrouping&>())
                                                    : Attribute();
  }
  return {};
}

}  // namespace

std::string_view to_string(AttrType type) {
  switch (type) {
    case AttrType::kBool:
      return "bool";
    case AttrType::kInt:
      return "int";
    case AttrType::kFloat:
      return "float";
    case AttrType::kString:
      return "str";
    case AttrType::kInts:
      return "ints";
    case AttrType::kFloats:
      return "floats";
    case AttrType::kDType:
      return "dtype";
    case AttrType::kGraph:
      return "graph";
    case AttrType::kStream:
      return "stream";
    case AttrType::kRemote:
      return "remote buffer";
    case AttrType::kGrouping:
      return "ReplicaGrouping";
  }
  return "?";
}

Attribute to_attribute(const Ir& ir, const OpDef& op, const AttrDef& def, py::handle value) {
  if (value.is_none()) return {};
  Attribute result = read(ir, def.type, value);
  if (std::holds_alternative<std::monostate>(result)) {
    raise<AttributeValueError>("{}: {} has the wrong type or range, got {}, expected {}", op.name, def.name,
                               shown(value), to_string(def.type));
  }
  return result;
}

py::object to_python(const Attribute& value) {
  struct Visitor {
    py::object operator()(std::monostate) const { return py::none(); }
    py::object operator()(bool v) const { return py::bool_(v); }
    py::object operator()(std::int64_t v) const { return py::int_(v); }
    py::object operator()(double v) const { return py::float_(v); }
    py::object operator()(const std::string& v) const { return py::str(v); }
    py::object operator()(const std::vector<std::int64_t>& v) const { return to_tuple(v); }
    py::object operator()(const std::vector<double>& v) const { return py::tuple(py::cast(v)); }
    py::object operator()(DType v) const { return py::str(std::string(info(v).name)); }
    py::object operator()(GraphId v) const { return py::int_(v.value); }
    py::object operator()(StreamId v) const { return py::int_(v.value); }
    py::object operator()(RemoteId v) const { return py::int_(v.value); }
    py::object operator()(const ReplicaGrouping& v) const { return py::cast(v); }
  };
  return std::visit(Visitor{}, value);
}

py::tuple to_tuple(const Shape& shape) {
  py::tuple result(shape.size());
  for (std::size_t i = 0; i < shape.size(); ++i) result[i] = py::int_(shape[i]);
  return result;
}

py::array copy_of_bytes(const std::byte* data, std::size_t bytes) {
  return py::array_t<std::uint8_t>(static_cast<py::ssize_t>(bytes),
                                   reinterpret_cast<const std::uint8_t*>(data));
}

}  // namespace popsr::bindings
