// Plain values between Python and C++, for classes that users see without a Python layer above them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "popsr/bindings/bindings.h"

namespace popsr::bindings {

/// An int of Python or NumPy, but no bool. As a parameter it accepts nothing else.
struct Integer {
  std::int64_t value = 0;
};

/// Throws the class of popsr.errors with that name.
[[noreturn]] void raise_as(const char* error, const std::string& text);
/// Short text of a value for messages, in one line; see popsr/_support/text/shown.py.
std::string shown(py::handle value);
std::string type_name(py::handle value);
/// Reads an argument as popsr/_support/host/arguments.py does: ArgumentTypeError for other types,
/// AttributeValueError beyond 64 bits or for endless lists.
std::int64_t read_int(const char* where, const char* name, py::handle value);
std::vector<std::int64_t> read_ints(const char* where, const char* name, py::handle values);
std::string read_text(const char* where, const char* name, py::handle value);
/// Text of argument types such as "(int, str, mode=int)", without the first `skipped` ones.
std::string types_of(const py::args& args, const py::kwargs& kwargs, std::size_t skipped = 0);

/// Adds a last constructor, for arguments that fit no other: throws ArgumentTypeError.
template <class Class>
auto no_other_arguments(const char* where, const char* expected) {
  return py::init([=](const py::args& args, const py::kwargs& kwargs) -> std::unique_ptr<Class> {
    raise_as("ArgumentTypeError", std::string(where) + ": arguments do not fit, got " +
                                      types_of(args, kwargs) + ", expected " + expected);
  });
}

/// Adds a last overload of methods, for arguments that fit no other: ArgumentTypeError instead of
/// pybind11's TypeError of many lines. Docstrings are unchanged.
struct Expected {
  const char* method;
  const char* arguments;  ///< Description of the expected arguments, such as "a Partition".
  bool is_static = false;
};
void refuse_other_arguments(py::handle cls, const char* where, std::initializer_list<Expected> methods);

template <class Items, class Convert>
py::tuple tuple_of(const Items& items, const Convert& convert) {
  py::tuple result(items.size());
  for (std::size_t i = 0; i < items.size(); ++i) result[i] = convert(items[i]);
  return result;
}

template <class Integers>
py::tuple tuple_of(const Integers& integers) {
  return tuple_of(integers, [](auto integer) { return py::int_(integer); });
}

}  // namespace popsr::bindings

template <>
struct pybind11::detail::type_caster<popsr::bindings::Integer> {
  PYBIND11_TYPE_CASTER(popsr::bindings::Integer, const_name("typing.SupportsIndex"));
  bool load(handle source, bool);
};
