// Recorder and tracer of a session, of which each may come and go by itself.
//
// The recorder works where the clock of the trace and of profiles stands still: it reads variables and inputs
// before the tracer begins a run, writes to its sink after the tracer has ended it, and the time in which it
// hashes values in between is left out, with the parts that threads take of it.
#pragma once

#include <chrono>
#include <cstdint>

#include "popsr/base/threads/thread_pool.h"
#include "popsr/runtime/plan/plan.h"

namespace popsr {

class Recorder;
class Tracer;
struct ObservedRun;

class RunObservers {
 public:
  void set_recorder(Recorder* recorder) { recorder_ = recorder; }
  void set_tracer(Tracer* tracer) { tracer_ = tracer; }
  bool empty() const { return recorder_ == nullptr && tracer_ == nullptr; }

  /// Time that the recorder has taken so far.
  const std::chrono::nanoseconds& recording() const { return recording_; }

  // Callbacks of a run, called on its thread.

  void run_begins(const ObservedRun& run);
  /// Called at the end of a run, including one that ends in an error.
  void run_ends(ThreadPool& pool);
  void instruction_begins(const Instruction& instruction);
  /// Called after an instruction, unless it threw.
  void instruction_ends(const Instruction& instruction);
  /// Called when iteration `i` of the loop whose iterations are at `path` begins.
  void iteration_begins(PathId path, std::uint64_t i);
  /// Called when the outputs of an instruction, or of a part of a merged or sliced one, hold their values.
  void outputs_ready(const Instruction& instruction, ActiveReplicas active,
                     const IdVector<PathId, std::uint64_t>& iterations, ThreadPool& pool);

 private:
  class Pause;

  Recorder* recorder_ = nullptr;
  Tracer* tracer_ = nullptr;
  std::chrono::nanoseconds recording_{0};
};

}  // namespace popsr
