// iter() of Python classes that are not Iterables.
#include "popsr/bindings/bindings.h"
#include "popsr/bindings/records.h"

namespace popsr::bindings {
namespace {

constexpr const char* kAttribute = "_refuse_iteration";

/// Raises the error of the class's `_refuse_iteration`.
PyObject* refuse(PyObject* self) {
  PyObject* const function = PyObject_GetAttrString(reinterpret_cast<PyObject*>(Py_TYPE(self)), kAttribute);
  if (function == nullptr) return nullptr;
  PyObject* const result = PyObject_CallOneArg(function, self);
  Py_DECREF(function);
  return result;
}

}  // namespace

void bind_iteration(py::module_& m) {
  // A method __iter__ would make the class a collections.abc.Iterable; of `__iter__ = None` Python's own
  // error says nothing of what to do instead.
  m.def(
      "set_iter",
      [](const py::type& cls, const As<"collections.abc.Callable[..., typing.NoReturn]">& function) {
        cls.attr(kAttribute) = py::module_::import("builtins").attr("staticmethod")(function);
        reinterpret_cast<PyTypeObject*>(cls.ptr())->tp_iter = &refuse;
        PyType_Modified(reinterpret_cast<PyTypeObject*>(cls.ptr()));
      },
      py::arg("cls"), py::arg("refuse"), "Lets iter() of objects of a class raise what a function raises.");
}

}  // namespace popsr::bindings
