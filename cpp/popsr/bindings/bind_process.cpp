// What popsr asks of the process it runs in: the floating-point environment, the end of the interpreter.
#include <pthread.h>
#include <pybind11/numpy.h>

#include <memory>
#include <optional>

#include "popsr/bindings/bindings.h"
#include "popsr/bindings/classes.h"
#include "popsr/bindings/gil.h"
#include "popsr/kernels/float_env.h"

namespace popsr::bindings {
namespace {

/// A context manager.
class FloatEnvironmentHandle {
 public:
  void enter() { environment_.emplace(); }
  void exit() { environment_.reset(); }

 private:
  std::optional<kernels::FloatEnvironment> environment_;
};

}  // namespace

void bind_process(py::module_& m) {
  py::class_<FloatEnvironmentHandle> environment(m, "FloatEnvironment");
  guard(environment)
      .def(py::init([] { return std::make_unique<FloatEnvironmentHandle>(); }))
      .def("__enter__", [](FloatEnvironmentHandle& self) { self.enter(); })
      .def("__exit__", [](FloatEnvironmentHandle& self, const py::args&) { self.exit(); });
  // pybind11 looks for NumPy when it is needed first, and gives up the GIL meanwhile in a way of its own: a
  // daemon thread in there would abort the process that exits. So it is needed now.
  py::detail::npy_api::get();
  py::module_::import("atexit").attr("register")(py::cpp_function(&begin_exit));
  pthread_atfork(nullptr, nullptr, &forget_other_threads);
}

}  // namespace popsr::bindings
