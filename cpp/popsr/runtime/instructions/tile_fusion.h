// Fusion of products that cannot stay in registers (narrow types, other reductions): some rows of every
// member's product are computed, rounded as if stored, and passed to the consumer's own kernel while they
// are in cache.
#pragma once

#include <memory>
#include <vector>

#include "popsr/base/threads/thread_pool.h"
#include "popsr/exec/block_kernel.h"
#include "popsr/exec/collective_kernel.h"
#include "popsr/exec/host_io.h"
#include "popsr/exec/product_kernel.h"
#include "popsr/kernels/contract/noise_key.h"
#include "popsr/runtime/instructions/thread_room.h"
#include "popsr/runtime/lowering/lowered_program.h"

namespace popsr {

class HostIo;
class PlanBuilder;

/// Operands of one output block of a fused product.
struct BoundProduct {
  /// Operands of the product per member of the group, ascending; one member when accumulating.
  std::vector<const void*> lhs, rhs;
  std::vector<const std::byte*> in;  ///< Operands of the consumer in this block.
  std::byte* out = nullptr;
  Replica replica = 0;                 ///< Smallest replica of the block.
  std::vector<Replica> seed_replicas;  ///< Smallest replica of the product's seed block, per member.
  /// Noise keys of the product per member, derived before each execution; empty without noise.
  std::vector<kernels::NoiseKey> noise = {};
};

class TileFusion {
 public:
  /// Builds the fusion; `op` is the consumer of the product.
  TileFusion(PlanBuilder& builder, const LoweredOp& op, const lowered::FusedProduct& fused);

  /// Computes one output block; `key` is the noise key of the consumer's output, null when rounded to
  /// nearest.
  void run(const BoundProduct& bound, const kernels::NoiseKey* key, HostIo& io, ThreadPool& pool) const;

 private:
  /// Kernel of the consumer for tiles of one size.
  struct Consumer {
    BlockKernel local;
    CollectiveKernel collective;
  };
  Consumer consumer_of(const PlanBuilder& builder, const LoweredOp& op, std::int64_t rows) const;
  void run_tile(const BoundProduct& bound, std::int64_t begin, std::byte* staging,
                const kernels::NoiseKey* key, HostIo& io) const;

  ProductFusion fusion_;
  RowsKernel rows_kernel_;
  std::int64_t rows_ = 0, columns_ = 0, step_ = 1;
  std::ptrdiff_t in_size_ = 0, out_size_ = 0;
  Consumer full_, tail_;
  std::shared_ptr<ThreadRoom> room_;  ///< Memory of tiles, [members, step, columns] for each thread.
  mutable ThreadPool serial_{1};      ///< Pool of one thread, for kernels that run inside a part.
};

}  // namespace popsr
