#include "popsr/runtime/instructions/tile_fusion.h"

#include <algorithm>

#include "popsr/base/error.h"
#include "popsr/base/threads/thread_pool.h"
#include "popsr/exec/block_kernel.h"
#include "popsr/exec/collective_kernel.h"
#include "popsr/exec/host_io.h"
#include "popsr/ir/op_def.h"
#include "popsr/runtime/lowering/rewrites.h"
#include "popsr/runtime/plan/plan_builder.h"

namespace popsr {
namespace {

// Tiles of all members together: stays in a second-level cache.
constexpr std::int64_t kStagingBytes = std::int64_t{1} << 19;
// While each thread gets a tile, tiles have so many rows: each converts all of the product's other operand.
constexpr std::int64_t kSharedRows = 32;
// Largest number of inputs of a consumer: its target, the product, and factors.
constexpr std::size_t kMaxInputs = 8;

}  // namespace

TileFusion::TileFusion(PlanBuilder& builder, const LoweredOp& op, const lowered::FusedProduct& fused)
    : fusion_(fused.fusion), rows_kernel_(fused.product->def->kernel.rows(builder.spec(*fused.product))) {
  const Ir& ir = builder.ir();
  const int threads = builder.options().threads;
  POPSR_CHECK(rows_kernel_ != nullptr && op.in.size() <= kMaxInputs);
  const TensorType& product = ir.tensor(fused.product->outputs[0]).type;
  columns_ = product.shape.empty() ? 1 : product.shape.back();
  rows_ = columns_ == 0 ? 0 : num_elements(product.shape) / columns_;
  in_size_ = static_cast<std::ptrdiff_t>(size_of(product.dtype));
  out_size_ = static_cast<std::ptrdiff_t>(size_of(ir.tensor(op.op->outputs[0]).type.dtype));
  const std::int64_t members = fusion_.target ? 1 : group_of(ir, fusion_).group_size();
  const std::int64_t row_bytes = std::max<std::int64_t>(members * columns_ * in_size_, 1);
  const std::int64_t share = std::max((rows_ + threads - 1) / threads, kSharedRows);
  step_ = std::clamp<std::int64_t>(std::min(kStagingBytes / row_bytes, share), 1,
                                   std::max<std::int64_t>(rows_, 1));
  full_ = consumer_of(builder, op, step_);
  if (rows_ % step_ != 0) tail_ = consumer_of(builder, op, rows_ % step_);
  room_ = builder.thread_room(static_cast<std::size_t>(row_bytes * step_));
}

TileFusion::Consumer TileFusion::consumer_of(const PlanBuilder& builder, const LoweredOp& op,
                                             std::int64_t rows) const {
  const Ir& ir = builder.ir();
  EvalSpec spec = builder.spec(*op.op);
  const Shape shape = {rows * columns_};
  spec.outputs[0].shape = shape;
  spec.inputs[fusion_.product_input]->shape = shape;
  if (fusion_.target) {
    spec.inputs[*fusion_.target]->shape = shape;
    return {op.op->def->kernel.eval(spec), nullptr};
  }
  // Member m of every group stands at index m of the staging.
  const ReplicaGrouping group = group_of(ir, fusion_);
  std::vector<std::uint32_t> labels;
  for (Replica r = 0; r < static_cast<Replica>(ir.replication()); ++r) {
    labels.push_back(static_cast<std::uint32_t>(group.index_in_group(r)));
  }
  CollectiveSpec facts{spec, {0}, {labels}};
  return {nullptr, op.op->def->kernel.collective(facts)};
}

void TileFusion::run(const BoundProduct& bound, const kernels::NoiseKey* key, HostIo& io,
                     ThreadPool& pool) const {
  const std::int64_t tiles = (rows_ + step_ - 1) / step_;
  const int threads = std::min(pool.threads(), static_cast<int>(room_->threads.size()));
  const int parts = static_cast<int>(std::min<std::int64_t>(tiles, threads));
  pool.run(parts, [&](int part) {
    std::byte* staging = room_->threads[static_cast<std::size_t>(part)].data();
    for (std::int64_t t = part; t < tiles; t += parts) {
      run_tile(bound, t * step_, staging, key, io);
    }
  });
}

void TileFusion::run_tile(const BoundProduct& bound, std::int64_t begin, std::byte* staging,
                          const kernels::NoiseKey* key, HostIo& io) const {
  const std::int64_t end = std::min(begin + step_, rows_);
  const std::ptrdiff_t member_bytes = (end - begin) * columns_ * in_size_;
  for (std::size_t m = 0; m < bound.lhs.size(); ++m) {
    rows_kernel_({static_cast<const std::byte*>(bound.lhs[m]), static_cast<const std::byte*>(bound.rhs[m]),
                  staging + static_cast<std::ptrdiff_t>(m) * member_bytes, begin, end,
                  bound.noise.empty() ? nullptr : &bound.noise[m]});
  }
  const Consumer& consumer = end - begin == step_ ? full_ : tail_;
  const auto first = static_cast<std::uint64_t>(begin * columns_);
  std::byte* out = bound.out + begin * columns_ * out_size_;
  const std::byte* in[kMaxInputs] = {};
  std::ptrdiff_t strides[kMaxInputs] = {};
  std::copy(bound.in.begin(), bound.in.end(), in);
  in[fusion_.product_input] = staging;
  const std::ptrdiff_t no_stride = 0;
  if (fusion_.target) {
    in[*fusion_.target] = out;
    consumer.local({in, strides, &out, &no_stride, 1, &key, serial_, first});
    return;
  }
  strides[fusion_.product_input] = member_bytes;
  consumer.collective({in, strides, &out, &no_stride, &key, io, serial_, first});
}

}  // namespace popsr
