// Kernels of ops that see the blocks of all replicas: collectives and host io.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "popsr/exec/block_kernel.h"
#include "popsr/exec/host_io.h"
#include "popsr/replica/local_blocks.h"

namespace popsr {

/// Static facts of an op whose kernel sees all blocks: a collective or host io.
struct CollectiveSpec : EvalSpec {
  std::vector<Replica> out_replicas;  ///< Smallest replica of each output block of this rank.
  std::vector<std::span<const std::uint32_t>>
      /// Block that holds each replica's value, per input; kAbsentBlock if this rank does not need it.
      in_labels;
};

struct CollectiveRun {
  const std::byte* const* in;
  const std::ptrdiff_t* in_stride;
  std::byte* const* out;
  const std::ptrdiff_t* out_stride;
  const kernels::NoiseKey* const* noise;
  HostIo& io;
  ThreadPool& pool;
  std::uint64_t first = 0;  ///< Noise index of element 0, as in BlockRun.
  /// Replicas that run the op: all members of a group or none. Other replicas' blocks are left unchanged.
  ActiveReplicas active = {};
  InvalidLabels* invalid_labels = nullptr;  ///< Collects labels out of range, as in BlockRun.
};
using CollectiveKernel = std::function<void(const CollectiveRun&)>;

}  // namespace popsr
