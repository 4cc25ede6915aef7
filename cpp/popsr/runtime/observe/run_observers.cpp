#include "popsr/runtime/observe/run_observers.h"

#include "popsr/runtime/observe/observed_run.h"
#include "popsr/runtime/observe/recorder.h"
#include "popsr/runtime/observe/tracer.h"

namespace popsr {

/// Scope of the recorder's work.
class RunObservers::Pause {
 public:
  Pause(RunObservers& observers, ThreadPool& pool) : observers_(observers), pool_(pool) {
    if (observers_.tracer_ != nullptr) pool_.collect_times(nullptr);
  }
  ~Pause() {
    Tracer* const tracer = observers_.tracer_;
    if (tracer != nullptr) pool_.collect_times(&tracer->parts());
    const auto taken = std::chrono::steady_clock::now() - begin_;
    observers_.recording_ += taken;
    if (tracer != nullptr) tracer->exclude(taken);
  }
  Pause(const Pause&) = delete;
  Pause& operator=(const Pause&) = delete;

 private:
  RunObservers& observers_;
  ThreadPool& pool_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

void RunObservers::run_begins(const ObservedRun& run) {
  if (recorder_ != nullptr) {
    const Pause pause(*this, run.pool);
    recorder_->run_begins(run);
  }
  if (tracer_ != nullptr) tracer_->run_begins(run);
}

void RunObservers::run_ends(ThreadPool& pool) {
  if (tracer_ != nullptr) tracer_->run_ends();
  if (recorder_ == nullptr) return;
  const Pause pause(*this, pool);
  recorder_->run_ends();  // may throw an error of its sink
}

void RunObservers::instruction_begins(const Instruction& instruction) {
  if (tracer_ != nullptr) tracer_->instruction_begins(instruction);
}

void RunObservers::instruction_ends(const Instruction& instruction) {
  if (tracer_ != nullptr) tracer_->instruction_ends(instruction);
}

void RunObservers::iteration_begins(PathId path, std::uint64_t i) {
  if (tracer_ != nullptr) tracer_->iteration_begins(path, i);
}

void RunObservers::outputs_ready(const Instruction& instruction, ActiveReplicas active,
                                 const IdVector<PathId, std::uint64_t>& iterations, ThreadPool& pool) {
  if (recorder_ == nullptr) return;
  const Pause pause(*this, pool);
  recorder_->outputs_ready(instruction, active, iterations, pool);
}

}  // namespace popsr
