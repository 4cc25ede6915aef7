#include "popsr/bindings/session/observe.h"

#include <string_view>
#include <utility>

#include "popsr/base/error.h"
#include "popsr/bindings/gil.h"
#include "popsr/kernels/float_env.h"

namespace popsr::bindings {
namespace {

template <class Item>
py::bytes bytes_of_items(const std::vector<Item>& items) {
  return {reinterpret_cast<const char*>(items.data()), items.size() * sizeof(Item)};
}

}  // namespace

void Observation::record(Session& session, const py::object& sink) {
  auto recorder = std::make_unique<Recorder>([sink](std::string_view piece) {
    const WithGil gil;
    const kernels::FloatEnvironment environment;  // Python code may change it
    call_python(sink, py::make_tuple(py::bytes(piece.data(), piece.size())));
  });
  session.record(recorder.get());
  recorder_ = std::move(recorder);
}

void Observation::end_recording(Session& session) {
  session.record(nullptr);
  recorder_.reset();
}

void Observation::trace(Session& session, std::size_t limit) {
  auto tracer = std::make_unique<Tracer>(limit);
  session.trace(tracer.get());
  tracer_ = std::move(tracer);
}

void Observation::end_trace(Session& session) {
  session.trace(nullptr);
  tracer_.reset();
}

std::tuple<py::bytes, std::vector<TracedInstruction>, std::vector<CountedInterval>, std::vector<py::bytes>>
Observation::events() const {
  POPSR_CHECK(tracer_ != nullptr);
  std::vector<TracedInstruction> instructions;
  for (const TraceSlot& each : tracer_->slots()) {
    instructions.emplace_back(each.name, each.op, each.path, each.bytes, each.blocks, each.has_body);
  }
  std::vector<CountedInterval> counts;
  for (const TraceCount& each : tracer_->counts()) {
    counts.emplace_back(each.begin, each.end, each.instructions, each.nanoseconds, each.bytes);
  }
  std::vector<py::bytes> parts;
  for (const auto& spans : tracer_->parts().threads) parts.push_back(bytes_of_items(spans));
  return {bytes_of_items(tracer_->events()), std::move(instructions), std::move(counts), std::move(parts)};
}

}  // namespace popsr::bindings
