#include "popsr/bindings/gil.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace popsr::bindings {
namespace {

constexpr std::chrono::milliseconds kExitTimeout{1000};

std::atomic<std::int64_t> computing{0};  ///< Threads inside the core that do not hold the GIL.
std::atomic<std::uint64_t> exits{0};
std::atomic<bool> leaving{false};  ///< begin_exit() waits.

[[noreturn]] void wait_for_ever() {
  for (;;) pause();
}

/// While begin_exit() waits, threads neither enter the core nor go back to Python, from where they might
/// enter.
void wait_while_leaving() {
  if (!leaving) return;
  --computing;
  leaving.wait(true);
  ++computing;
}

/// CPython's exception that ends a thread never leaves this function. Nothing else comes: the call is of C.
template <class Call>
auto unless_ended(const Call& call) {
  try {
    return call();
  } catch (...) {
    wait_for_ever();
  }
}

}  // namespace

WithoutGil::WithoutGil() {
  ++computing;  // while the GIL is held: begin_exit() misses no one
  state_ = PyEval_SaveThread();
  wait_while_leaving();
}

WithoutGil::~WithoutGil() {
  wait_while_leaving();
  --computing;
  unless_ended([this] { PyEval_RestoreThread(state_); });
}

WithGil::WithGil() : computing_(PyGILState_Check() == 0) {
  if (computing_) {
    wait_while_leaving();
    --computing;
  }
  state_ = unless_ended([] { return PyGILState_Ensure(); });
}

WithGil::~WithGil() {
  if (computing_) ++computing;
  PyGILState_Release(state_);
}

py::object call_python(const py::object& function, const py::tuple& arguments) {
  PyObject* result = unless_ended([&] { return PyObject_CallObject(function.ptr(), arguments.ptr()); });
  if (result == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(result);
}

PyObject* vectorcall(PyObject* function, PyObject* const* arguments, Py_ssize_t count, PyObject* names) {
  return unless_ended(
      [&] { return PyObject_Vectorcall(function, arguments, static_cast<std::size_t>(count), names); });
}

void run_signal_handlers() {
  if (unless_ended([] { return PyErr_CheckSignals(); }) != 0) throw py::error_already_set();
}

std::uint64_t exits_begun() { return exits.load(std::memory_order_relaxed); }

void begin_exit() {
  ++exits;
  if (computing == 0) return;
  leaving = true;
  PyThreadState* const state = PyEval_SaveThread();
  const auto end = std::chrono::steady_clock::now() + kExitTimeout;
  while (computing != 0 && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  PyEval_RestoreThread(state);
  leaving = false;
  leaving.notify_all();
}

void forget_other_threads() {
  computing = 0;
  leaving = false;
}

}  // namespace popsr::bindings
