// Records of popsr/_support/records.py: results of the core, with typed fields. Signatures show their types.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>

#include <pybind11/typing.h>

#include "popsr/bindings/bindings.h"

namespace popsr::bindings {

/// String as a template argument.
template <std::size_t N>
struct RecordName {
  char text[N] = {};
  consteval RecordName(const char (&name)[N]) { std::copy_n(name, N, text); }  // NOLINT: implicit
};

/// NamedTuple of popsr._support.records, which is imported at the first use: Record<"TensorInfo">.
template <RecordName Name>
class Record : public py::object {
 public:
  using py::object::object;
  /// Type check of pybind11's object types, which throws if the conversion failed.
  static bool check_(py::handle value) { return py::isinstance(value, type()); }

  /// Makes the record from one value for each field, in order.
  template <class... Fields>
  static Record of(Fields&&... fields) {
    const py::tuple arguments = py::make_tuple(py::make_tuple(std::forward<Fields>(fields)...));
    // Calls tuple.__new__(class, fields), since a NamedTuple's own __new__ is a function of Python.
    PyObject* const made =
        PyTuple_Type.tp_new(reinterpret_cast<PyTypeObject*>(type().ptr()), arguments.ptr(), nullptr);
    if (made == nullptr) throw py::error_already_set();
    return Record(made, py::object::stolen_t{});
  }

 private:
  static const py::object& type() {
    static py::gil_safe_call_once_and_store<py::object> storage;
    return storage
        .call_once_and_store_result(
            [] { return py::object(py::module_::import("popsr._support.records").attr(Name.text)); })
        .get_stored();
  }
};

/// Dict with the keys of a TypedDict of popsr._support.records.
template <RecordName Name>
class Keyed : public py::dict {
 public:
  using py::dict::dict;
  Keyed(py::dict dict) : py::dict(std::move(dict)) {}  // NOLINT: implicit
};

/// Any object, as a parameter that signatures show as another type; popsr's own errors report wrong types.
template <RecordName Type>
class As : public py::object {
 public:
  using py::object::object;
  static bool check_(py::handle) { return true; }
};

using AnInt = As<"typing.SupportsIndex">;
using Ints = As<"collections.abc.Iterable[typing.SupportsIndex]">;

/// Result of __reduce__: a function or class of a public module, which pickles name, and its arguments.
using Reduced = py::typing::Tuple<py::object, py::tuple>;
template <class... Args>
Reduced rebuilt_in(const char* module, const char* function, Args&&... args) {
  return py::make_tuple(py::module_::import(module).attr(function),
                        py::make_tuple(std::forward<Args>(args)...));
}
template <class... Args>
Reduced rebuilt_by(const char* function, Args&&... args) {
  return rebuilt_in("popsr.replicas", function, std::forward<Args>(args)...);
}

template <class T>
using TupleOf = py::typing::Tuple<T, py::ellipsis>;

}  // namespace popsr::bindings

template <popsr::bindings::RecordName Name>
struct pybind11::detail::handle_type_name<popsr::bindings::Record<Name>> {
  static constexpr auto name = const_name("popsr._support.records.") + const_name(Name.text);
};

template <popsr::bindings::RecordName Type>
struct pybind11::detail::handle_type_name<popsr::bindings::As<Type>> {
  static constexpr auto name = const_name(Type.text);
};

template <popsr::bindings::RecordName Name>
struct pybind11::detail::handle_type_name<popsr::bindings::Keyed<Name>> {
  static constexpr auto name = const_name("popsr._support.records.") + const_name(Name.text);
};
