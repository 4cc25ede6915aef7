// Interface to watch the instructions of runs: for recordings of values, and traces of times.
#pragma once

#include <cstdint>
#include <span>

#include "popsr/base/threads/thread_pool.h"
#include "popsr/exec/host_io.h"
#include "popsr/runtime/execution/stream_io.h"
#include "popsr/runtime/plan/plan.h"

namespace popsr {

/// Description of a run that begins.
struct ObservedRun {
  const Ir& ir;
  const Plan& plan;
  bool dedup;
  std::uint64_t seed, step;
  std::span<const TensorId> variables;    ///< Variables, shards and remote entries.
  std::span<const StreamId> streams;      ///< Streams in use.
  std::span<const StreamBuffer> buffers;  ///< Buffers by StreamId.
  const IdVector<StreamId, StreamRows>& rows;
  ThreadPool& pool;
};

/// Callbacks of a run, called on its thread.
class RunObserver {
 public:
  virtual ~RunObserver() = default;
  virtual void run_begins(const ObservedRun& run) = 0;
  /// Called at the end of a run, including one that ends in an error.
  virtual void run_ends() = 0;
  virtual void instruction_begins(const Instruction&) {}
  /// Called after an instruction, unless it threw.
  virtual void instruction_ends(const Instruction&) {}
  /// Called when iteration `i` of the loop whose iterations are at `path` begins.
  virtual void iteration_begins(PathId /*path*/, std::uint64_t /*i*/) {}
  /// Called when the outputs of an instruction, or of a part of a merged or sliced one, hold their values.
  virtual void outputs_ready(const Instruction& /*instruction*/, ActiveReplicas /*active*/,
                             const IdVector<PathId, std::uint64_t>& /*iterations*/, ThreadPool& /*pool*/) {}
};

}  // namespace popsr
