// Recordings and traces of a session, for Python.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "popsr/bindings/bindings.h"
#include "popsr/bindings/records.h"
#include "popsr/runtime/observe/recorder.h"
#include "popsr/runtime/observe/tracer.h"
#include "popsr/runtime/session/session.h"

namespace popsr::bindings {

/// Instruction of a trace: name, op, words of the path, bytes, blocks, and whether it has a body.
using TracedInstruction =
    std::tuple<std::string, std::uint32_t, std::vector<std::uint32_t>, std::uint64_t, std::uint64_t, bool>;
/// Interval of a trace: begin and end in nanoseconds, instructions, nanoseconds in them, bytes.
using CountedInterval = std::tuple<std::int64_t, std::int64_t, std::uint64_t, std::uint64_t, std::uint64_t>;

/// Recording and trace of a session, each of which may be there or not.
class Observation {
 public:
  /// Starts a recording; `sink` is called with its bytes, piece by piece.
  void record(Session& session, const py::object& sink);
  void end_recording(Session& session);
  /// Starts a trace that keeps at most `limit` events.
  void trace(Session& session, std::size_t limit);
  void end_trace(Session& session);

  /// Results of the trace: TraceEvents, as bytes; instructions; intervals; PartTimes::Spans of each thread,
  /// as bytes.
  std::tuple<py::bytes, std::vector<TracedInstruction>, std::vector<CountedInterval>, std::vector<py::bytes>>
  events() const;

 private:
  std::unique_ptr<Recorder> recorder_;
  std::unique_ptr<Tracer> tracer_;
};

}  // namespace popsr::bindings
