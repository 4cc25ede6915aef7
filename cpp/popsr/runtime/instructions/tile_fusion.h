// Fusion of products that cannot stay in registers (narrow types, other reductions): some rows of every
// member's product are made, rounded as they would be when stored, and handed to the consumer's own kernel
// while they are in cache.
#pragma once

#include <memory>
#include <vector>

#include "popsr/base/thread_pool.h"
#include "popsr/exec/block_kernel.h"
#include "popsr/exec/collective_kernel.h"
#include "popsr/exec/host_io.h"
#include "popsr/exec/product_kernel.h"
#include "popsr/kernels/contract/kernel_table.h"
#include "popsr/runtime/instructions/thread_room.h"
#include "popsr/runtime/lowering/lowered_program.h"

namespace popsr {

class HostIo;
class PlanBuilder;

/// One output block of a fused product.
struct BoundProduct {
  std::vector<const void*> lhs, rhs;  ///< Members of the group, ascending; one when accumulating.
  std::vector<const std::byte*> in;   ///< Operands of the consumer in this block.
  std::byte* out = nullptr;
  Replica replica = 0;                 ///< Smallest of the block.
  std::vector<Replica> seed_replicas;  ///< Per member: smallest replica of the product's seed block.
  std::vector<kernels::NoiseKey> noise =
      {};  ///< Per member, made before each execution; empty without noise.
};

class TileFusion {
 public:
  /// `op` takes the product.
  TileFusion(PlanBuilder& builder, const LoweredOp& op, const lowered::FusedProduct& fused);

  /// One output block; `key`: noise of the consumer's output, null when rounded to nearest.
  void run(const BoundProduct& bound, const kernels::NoiseKey* key, HostIo& io, ThreadPool& pool) const;

 private:
  /// The consumer on tiles of one size.
  struct Consumer {
    BlockKernel local;
    CollectiveKernel collective;
  };
  Consumer consumer_of(const Ir& ir, const kernels::KernelTable& kernels, const LoweredOp& op,
                       std::int64_t rows) const;
  void run_tile(const BoundProduct& bound, std::int64_t begin, std::byte* staging,
                const kernels::NoiseKey* key, HostIo& io) const;

  ProductFusion fusion_;
  RowsKernel rows_kernel_;
  std::int64_t rows_ = 0, columns_ = 0, step_ = 1;
  std::ptrdiff_t in_size_ = 0, out_size_ = 0;
  Consumer full_, tail_;
  std::shared_ptr<ThreadRoom> room_;  ///< Of tiles, [members, step, columns] for each thread.
  mutable ThreadPool serial_{1};      ///< For kernels that run inside a part.
};

}  // namespace popsr
