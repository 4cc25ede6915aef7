// Description of a run for what watches it.
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

}  // namespace popsr
