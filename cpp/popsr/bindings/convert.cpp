#include "popsr/bindings/convert.h"

#include <fmt/format.h>

namespace py = pybind11;

bool py::detail::type_caster<popsr::bindings::Integer>::load(handle source, bool) {
  if (!source || PyBool_Check(source.ptr()) || !PyIndex_Check(source.ptr())) return false;
  const auto index = reinterpret_steal<object>(PyNumber_Index(source.ptr()));
  if (!index) {
    PyErr_Clear();
    return false;
  }
  int overflow = 0;
  value.value = PyLong_AsLongLongAndOverflow(index.ptr(), &overflow);
  return overflow == 0;
}

namespace popsr::bindings {

void raise_as(const char* error, const std::string& text) {
  py::set_error(py::module_::import("popsr.errors").attr(error), text.c_str());
  throw py::error_already_set();
}

std::string type_name(py::handle value) {
  return py::type::handle_of(value).attr("__name__").cast<std::string>();
}

std::int64_t read_int(const char* where, const char* name, py::handle value) {
  py::detail::make_caster<Integer> caster;
  if (caster.load(value, false)) return py::detail::cast_op<Integer&>(caster).value;
  raise_as("ArgumentTypeError",
           fmt::format("{}: {} is not an int of 64 bits, got {}", where, name, type_name(value)));
}

std::vector<std::int64_t> read_ints(const char* where, const char* name, py::handle values) {
  if (!py::isinstance<py::iterable>(values)) {
    raise_as("ArgumentTypeError",
             fmt::format("{}: {} is not a sequence of ints, got {}", where, name, type_name(values)));
  }
  std::vector<std::int64_t> result;
  for (const py::handle value : py::iter(values)) result.push_back(read_int(where, name, value));
  return result;
}

std::string types_of(const py::args& args, const py::kwargs& kwargs) {
  std::vector<std::string> types;
  for (const py::handle arg : args) types.push_back(type_name(arg));
  for (const auto& [name, arg] : kwargs) types.push_back(name.cast<std::string>() + "=" + type_name(arg));
  std::string text;
  for (const std::string& type : types) text += (text.empty() ? "" : ", ") + type;
  return "(" + text + ")";
}

}  // namespace popsr::bindings
