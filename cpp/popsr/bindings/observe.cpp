#include "popsr/bindings/observe.h"

#include <string_view>

#include "popsr/bindings/gil.h"
#include "popsr/kernels/float_env.h"

namespace popsr::bindings {
void Observation::record(Session& session, const py::object& sink) {
  recorder_ = std::make_unique<Recorder>([sink](std::string_view piece) {
    const WithGil held;
    const kernels::FloatEnvironment environment;  // Python code may change it
    call_python(sink, py::make_tuple(py::bytes(piece.data(), piece.size())));
  });
  session.observe(recorder_.get());
}

void Observation::end(Session& session) {
  session.observe(nullptr);
  recorder_.reset();
}

}  // namespace popsr::bindings
