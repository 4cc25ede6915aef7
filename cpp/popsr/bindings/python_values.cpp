#include "popsr/bindings/python_values.h"

#include <fmt/format.h>

#include <cstdlib>
#include <cstring>

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

namespace {

/// A function that reads arguments, whose errors have no frames of popsr: the core's methods are called by
/// users.
py::object reader(const char* name) {
  const py::object read = py::module_::import("popsr._support.host.arguments").attr(name);
  return py::module_::import("popsr._support.text.entry_points").attr("entry_point")(read);
}

std::string named(const char* where, const char* name) { return fmt::format("{}: {}", where, name); }

}  // namespace

std::string shown(py::handle value) {
  return py::module_::import("popsr._support.text.shown").attr("shown")(value).cast<std::string>();
}

std::string type_name(py::handle value) {
  return py::module_::import("popsr._support.text.shown").attr("type_name")(value).cast<std::string>();
}

std::int64_t read_int(const char* where, const char* name, py::handle value) {
  return reader("read_int")(named(where, name), value).cast<std::int64_t>();
}

std::vector<std::int64_t> read_ints(const char* where, const char* name, py::handle values) {
  return reader("read_int64s")(where, name, values).cast<std::vector<std::int64_t>>();
}

std::string read_text(const char* where, const char* name, py::handle value) {
  return reader("read_text")(named(where, name), value).cast<std::string>();
}

std::string types_of(const py::args& args, const py::kwargs& kwargs, std::size_t skipped) {
  std::vector<std::string> types;
  for (std::size_t i = skipped; i < args.size(); ++i) types.push_back(type_name(args[i]));
  for (const auto& [name, arg] : kwargs) types.push_back(name.cast<std::string>() + "=" + type_name(arg));
  std::string text;
  for (const std::string& type : types) text += (text.empty() ? "" : ", ") + type;
  return "(" + text + ")";
}

void refuse_other_arguments(py::handle cls, const char* where, std::initializer_list<Expected> methods) {
  for (const auto& [method, arguments, is_static] : methods) {
    const py::object before = cls.attr(method);
    const std::string doc = before.attr("__doc__").cast<std::string>();
    const std::size_t skipped = is_static ? 0 : 1;
    const std::string what = fmt::format("{}.{}", where, method);
    const std::string expected = fmt::format("({})", arguments);
    const auto refuse = [what, expected, skipped](const py::args& args,
                                                  const py::kwargs& kwargs) -> py::object {
      raise_as("ArgumentTypeError", fmt::format("{}: arguments do not fit, got {}, expected {}", what,
                                                types_of(args, kwargs, skipped), expected));
    };
    const py::cpp_function overload =
        is_static ? py::cpp_function(refuse, py::name(method), py::scope(cls), py::sibling(before))
                  : py::cpp_function(refuse, py::name(method), py::is_method(cls), py::sibling(before));
    // The overload joined the chain of the function that is there, and wrote another docstring.
    PyMethodDef* const definition =
        reinterpret_cast<PyCFunctionObject*>(py::detail::get_function(overload).ptr())->m_ml;
    std::free(const_cast<char*>(definition->ml_doc));  // NOLINT: pybind11's, from strdup
    definition->ml_doc = strdup(doc.c_str());
  }
}

}  // namespace popsr::bindings
