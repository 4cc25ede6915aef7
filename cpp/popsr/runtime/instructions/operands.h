// Operands of instructions, bound to memory, and keys of their noise.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "popsr/base/containers/small_vector.h"
#include "popsr/kernels/contract/kernel_table.h"

namespace popsr {

/// Blocks first..first+blocks-1 of an instruction, whose operands have constant strides.
struct BoundRun {
  SmallVector<const std::byte*, 3> in = {};
  SmallVector<std::ptrdiff_t, 3> in_stride = {};
  SmallVector<std::byte*, 1> out = {};
  SmallVector<std::ptrdiff_t, 1> out_stride = {};
  /// Noise keys per output, from block `first` on; null without noise.
  SmallVector<const kernels::NoiseKey*, 1> noise = {};
  std::int64_t first = 0;
  std::int64_t blocks = 0;
};

struct BlockCopy {
  std::byte* to = nullptr;
  const std::byte* from = nullptr;
  std::size_t nbytes = 0;
  /// Replica whose value is copied; for merged copies, another of the same execution block.
  Replica replica = 0;
};

/// Noise keys, one per output and block, derived before each execution. Empty if the outputs are rounded to
/// nearest.
struct NoiseKeys {
  std::vector<std::vector<kernels::NoiseKey>> keys = {};  ///< Keys by output, then block.
  std::vector<Replica> seed_replicas = {};                ///< Smallest replica of each block's seed block.
};

}  // namespace popsr
