// The GIL around calls into the core. A daemon thread may be inside the core when the interpreter ends; a
// thread that then asks for the GIL is ended by CPython (3.13 and older), by an unwinding that destructors
// and pybind11's objects do not survive. Such a thread waits here for the end of the process instead, as it
// does in CPython from 3.14 on. So nothing else in bindings/ acquires or releases the GIL.
#pragma once

#include <cstdint>

#include "popsr/bindings/bindings.h"

namespace popsr::bindings {

/// Scope that releases the GIL, which the caller holds.
class WithoutGil {
 public:
  WithoutGil();
  ~WithoutGil();
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* state_;
};

/// Scope that holds the GIL, whether or not the caller does.
class WithGil {
 public:
  WithGil();
  ~WithGil();
  WithGil(const WithGil&) = delete;
  WithGil& operator=(const WithGil&) = delete;

 private:
  bool computing_;  ///< True if the caller released it by WithoutGil.
  PyGILState_STATE state_;
};

/// Calls PyObject_Vectorcall for C functions that must clean up: a thread that ends in it is not unwound.
PyObject* vectorcall(PyObject* function, PyObject* const* arguments, Py_ssize_t count, PyObject* names);
/// Calls back into Python from inside the core, where C++ objects wait for its return. The caller holds the
/// GIL.
py::object call_python(const py::object& function, const py::tuple& arguments);
/// Runs the handlers of signals that arrived; throws what they raise.
void run_signal_handlers();

/// Number of times that the interpreter has begun to end: a computation that sees it change stops.
std::uint64_t exits_begun();
/// Tells computations to stop, and gives threads inside the core a second to leave it: from then on Python
/// must not be called. The caller holds the GIL, which other threads may acquire meanwhile.
void begin_exit();
/// Resets the state in the child of a fork, in which the other threads do not exist.
void forget_other_threads();

}  // namespace popsr::bindings
