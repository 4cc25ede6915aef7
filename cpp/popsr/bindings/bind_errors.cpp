// The classes live in popsr/errors.py; here each C++ error finds its class.
#include "popsr/base/error.h"

#include <new>
#include <string_view>

#include "popsr/bindings/bindings.h"

namespace popsr::bindings {
namespace {

// Set once when the module is made, never freed: a translator may run until the interpreter ends.
PyObject* errors_module = nullptr;

void raise_python(const char* name, const Error& error) {
  const auto type = py::reinterpret_steal<py::object>(PyObject_GetAttrString(errors_module, name));
  if (type) PyErr_SetString(type.ptr(), error.what());
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
  } catch (const std::bad_alloc& e) {
    const bool is_bare = std::string_view(e.what()) == "std::bad_alloc";
    PyErr_SetString(PyExc_MemoryError, is_bare ? "not enough memory" : e.what());
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
