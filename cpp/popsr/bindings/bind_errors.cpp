// The classes live in popsr/errors.py; here each C++ error finds its class.
#include "popsr/base/error.h"

#include <new>
#include <string_view>

#include "popsr/base/no_memory.h"
#include "popsr/bindings/bindings.h"

namespace popsr::bindings {
namespace {

// Set once when the module is made, never freed: a translator may run until the interpreter ends.
PyObject* errors_module = nullptr;

void raise_python(const char* name, const Error& error) {
  const auto type = py::reinterpret_steal<py::object>(PyObject_GetAttrString(errors_module, name));
  if (type) PyErr_SetString(type.ptr(), error.what());
}

std::string_view view_of(PyObject* text) {
  Py_ssize_t size = 0;
  const char* const data = text != nullptr ? PyUnicode_AsUTF8AndSize(text, &size) : nullptr;
  return data != nullptr ? std::string_view(data, static_cast<std::size_t>(size)) : std::string_view();
}

bool is_popsr(PyFrameObject* frame) {
  const auto globals = py::reinterpret_steal<py::object>(PyFrame_GetGlobals(frame));
  const std::string_view module = view_of(PyDict_GetItemString(globals.ptr(), "__name__"));
  return module == "popsr" || module.starts_with("popsr.");
}

/// "Session" for Session.__init__, "add" for Tensor.__add__.
std::string_view short_name(std::string_view qualified) {
  const std::size_t dot = qualified.rfind('.');
  std::string_view name = qualified.substr(dot + 1);  // npos + 1 is 0
  if (name == "__init__" && dot != qualified.npos) return short_name(qualified.substr(0, dot));
  while (name.starts_with('_')) name.remove_prefix(1);
  while (name.ends_with('_')) name.remove_suffix(1);
  return name;
}

/// Name of popsr's function that was called from outside; null if there is none. Uses Python's own memory
/// only.
py::object name_of_call() {
  py::object name;
  auto frame = py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject*>(PyEval_GetFrame()));
  while (frame) {
    auto* const at = reinterpret_cast<PyFrameObject*>(frame.ptr());
    if (!is_popsr(at)) break;
    const auto code = py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(PyFrame_GetCode(at)));
    const auto qualified =
        py::reinterpret_steal<py::object>(PyObject_GetAttrString(code.ptr(), "co_qualname"));
    const std::string_view text = view_of(qualified.ptr());
    const std::string_view last = short_name(text);
    const bool is_inner = text.find("<locals>") != text.npos;  // of a decorator, mostly
    if (!is_inner && !last.empty() && !last.starts_with('<')) {
      name = py::reinterpret_steal<py::object>(
          PyUnicode_FromStringAndSize(last.data(), static_cast<Py_ssize_t>(last.size())));
    }
    frame = py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(PyFrame_GetBack(at)));
  }
  PyErr_Clear();
  return name;
}

void raise_no_memory(const std::bad_alloc& error) {
  if (dynamic_cast<const NoMemory*>(&error) != nullptr) {
    PyErr_SetString(PyExc_MemoryError, error.what());
  } else if (const py::object name = name_of_call()) {
    PyErr_Format(PyExc_MemoryError, "%U: not enough memory", name.ptr());
  } else {
    PyErr_SetString(PyExc_MemoryError, "popsr: not enough memory");
  }
}

void translate(std::exception_ptr pointer) {
  if (!pointer) return;
  try {
    std::rethrow_exception(pointer);
  } catch (const ShapeError& e) {
    raise_python("ShapeError", e);
  } catch (const DTypeError& e) {
    raise_python("DTypeError", e);
  } catch (const AttributeValueError& e) {
    raise_python("AttributeValueError", e);
  } catch (const GraphError& e) {
    raise_python("GraphError", e);
  } catch (const ReplicaError& e) {
    raise_python("ReplicaError", e);
  } catch (const OutOfRangeError& e) {
    raise_python("OutOfRangeError", e);
  } catch (const NameError& e) {
    raise_python("UnknownNameError", e);
  } catch (const StoppedError& e) {
    raise_python("StoppedError", e);
  } catch (const FloatingPointError& e) {
    raise_python("FloatingPointError", e);
  } catch (const RankError& e) {
    raise_python("RankError", e);
  } catch (const std::bad_alloc& e) {
    raise_no_memory(e);
  } catch (const InternalError& e) {
    raise_python("InternalError", e);
  } catch (const Error& e) {
    raise_python("Error", e);
  }
}

}  // namespace

void bind_errors(py::module_&) {
  errors_module = py::module_::import("popsr.errors").release().ptr();
  py::register_local_exception_translator(translate);
}

}  // namespace popsr::bindings
