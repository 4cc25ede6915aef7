#include "popsr/ops/loops/strided.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include "popsr/base/layout/loop_nest.h"
#include "popsr/exec/block_kernel.h"
#include "popsr/kernels/contract/kernel_table.h"
#include "popsr/ops/loops/blocks.h"
#include "popsr/ops/loops/tiles.h"

namespace popsr {

namespace {

LoopNest nest_of(const StridedView& view) { return {view.shape, {&view.strides, 1}}; }

/// Positions begin..end-1 of the outermost loop, in C order, to `out`.
void gather(const kernels::KernelTable& kernels, std::byte* out, const std::byte* in, const LoopNest& nest,
            std::int64_t begin, std::int64_t end, std::int64_t size) {
  const std::size_t rank = std::min(nest.rank(), kernels::kMaxGatherRank);
  // The kernel takes the innermost loops, the outermost of them first.
  std::array<std::int64_t, kernels::kMaxGatherRank> shape, strides;
  std::int64_t elements = size;
  for (std::size_t loop = 0; loop < rank; ++loop) {
    shape[rank - 1 - loop] = nest.extent(loop);
    strides[rank - 1 - loop] = nest.stride(loop);
    elements *= nest.extent(loop);
  }
  const auto call = [&](std::byte* to, const std::byte* from) {
    kernels.gather_strided(to, from, static_cast<int>(rank), shape.data(), strides.data(),
                           static_cast<int>(size));
  };
  if (rank == nest.rank()) {
    shape[0] = end - begin;
    return call(out, in + begin * strides[0] * size);
  }
  const LoopNest outer = nest.outer(rank);
  const std::int64_t each = outer.count() / nest.extent(nest.rank() - 1);
  for (std::int64_t i = begin * each; i < end * each; ++i) {
    call(out + (i - begin * each) * elements, in + outer.offset(i) * size);
  }
}

/// Gathers one view per block; contiguous blocks are one more loop of the nest.
class Gather {
 public:
  Gather(const EvalSpec& spec, const StridedView& view)
      : kernels_(spec.kernels),
        nest_(nest_of(view)),
        offset_(view.offset),
        elements_(num_elements(view.shape)),
        size_(static_cast<std::int64_t>(size_of(spec.outputs[0].dtype))) {}

  void operator()(const BlockRun& run) const {
    if (elements_ == 0) return;
    const RunInput input{.input = 0, .size = size_};
    const std::optional<LoopNest> merged =
        run.blocks > 1 ? merge_blocks(run, nest_, {&input, 1}, 0, elements_ * size_, false) : std::nullopt;
    if (merged) return split(Block(run, 0), *merged, run.blocks * elements_);
    for_each_block(run, [this](const Block& block) { split(block, nest_, elements_); });
  }

 private:
  /// Splits the outermost loop among threads.
  void split(const Block& block, const LoopNest& nest, std::int64_t elements) const {
    const std::byte* const in = block.in(0) + offset_ * size_;
    const std::int64_t rows = nest.extent(nest.rank() - 1);
    const std::int64_t step = elements / rows * size_;
    parallel_for(block.run().pool, rows, 1, elements, [&](std::int64_t begin, std::int64_t end) {
      gather(kernels_, block.out() + begin * step, in, nest, begin, end, size_);
    });
  }

  const kernels::KernelTable& kernels_;
  LoopNest nest_;
  std::int64_t offset_;
  std::int64_t elements_;
  std::int64_t size_;
};

}  // namespace

BlockKernel gather_kernel(const EvalSpec& spec, const StridedView& view) { return Gather(spec, view); }

BlockKernel embed_kernel(const EvalSpec& spec, const StridedView& full) {
  const auto size = static_cast<std::int64_t>(size_of(spec.outputs[0].dtype));
  const std::int64_t elements = num_elements(spec.outputs[0].shape), moved = num_elements(full.shape);
  Shape strides = full.strides;
  for (std::int64_t& stride : strides) stride *= size;
  return [nest = LoopNest(full.shape, {&strides, 1}), at = full.offset * size, size, elements,
          moved](const BlockRun& run) {
    if (elements == 0) return;
    share_blocks(run, elements, [&](const Block& block) {
      std::memset(block.out(), 0, static_cast<std::size_t>(elements * size));
      copy_range(nest, block.out() + at, 0, block.in(0), kContiguous, size, 0, moved);
    });
  };
}

}  // namespace popsr
