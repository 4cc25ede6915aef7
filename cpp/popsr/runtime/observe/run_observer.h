// Watching the instructions of runs: recordings of values, and traces of times.
#pragma once

#include <cstdint>
#include <span>

#include "popsr/base/thread_pool.h"
#include "popsr/exec/host_io.h"
#include "popsr/runtime/execution/stream_io.h"
#include "popsr/runtime/plan/plan.h"

namespace popsr {

/// A run that begins.
struct ObservedRun {
  const Ir& ir;
  const Plan& plan;
  bool dedup;
  std::uint64_t seed, step;
  std::span<const TensorId> variables;    ///< Also shards and remote entries.
  std::span<const StreamId> streams;      ///< In use.
  std::span<const StreamBuffer> buffers;  ///< By StreamId.
  const IdVector<StreamId, StreamRows>& rows;
  ThreadPool& pool;
};

/// Called on the thread of the run.
class RunObserver {
 public:
  virtual ~RunObserver() = default;
  virtual void run_begins(const ObservedRun& run) = 0;
  /// Also of a run that ends in an error.
  virtual void run_ends() = 0;
  virtual void instruction_begins(const Instruction&) {}
  /// Not after an error.
  virtual void instruction_ends(const Instruction&) {}
  /// Iteration `i` of the loop whose iterations are at `path`.
  virtual void iteration_begins(PathId /*path*/, std::uint64_t /*i*/) {}
  /// The outputs of an instruction, or of a part of a merged or sliced one, hold their values.
  virtual void outputs_ready(const Instruction& /*instruction*/, ActiveReplicas /*active*/,
                             const IdVector<PathId, std::uint64_t>& /*iterations*/, ThreadPool& /*pool*/) {}
};

}  // namespace popsr
