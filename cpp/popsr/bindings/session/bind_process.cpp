// The process around popsr: the floating-point environment, the end of the interpreter.
#include <pthread.h>
#include <pybind11/numpy.h>

#include "popsr/bindings/bindings.h"
#include "popsr/bindings/gil.h"
#include "popsr/kernels/float_env.h"

namespace popsr::bindings {
namespace {

/// in_default_environment(function, *args, **kwargs). Conversions of literals go through it: it costs little.
PyObject* in_default_environment(PyObject*, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  if (count < 1) {
    PyErr_SetString(PyExc_TypeError, "in_default_environment: no function, got no arguments, expected one");
    return nullptr;
  }
  // All of it, not MXCSR alone: NumPy reports overflow by feraiseexcept, which traps in x87.
  const kernels::PortableFloatEnvironment environment;
  return vectorcall(args[0], args + 1, count - 1, names);
}

}  // namespace

void bind_process(py::module_& m) {
  static PyMethodDef def{"in_default_environment",
                         reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(in_default_environment)),
                         METH_FASTCALL | METH_KEYWORDS,
                         "in_default_environment(function, *args, **kwargs): call it in the default "
                         "floating-point environment."};
  m.attr("in_default_environment") = py::reinterpret_steal<py::object>(PyCFunction_New(&def, nullptr));
  // pybind11 looks for NumPy when it is needed first, and gives up the GIL meanwhile in a way of its own: a
  // daemon thread in there would abort the process that exits. So it is needed now.
  py::detail::npy_api::get();
  py::module_::import("atexit").attr("register")(py::cpp_function(&begin_exit));
  pthread_atfork(nullptr, nullptr, &forget_other_threads);
}

}  // namespace popsr::bindings
