// lamb_square: the squared norm of a tensor, for optimisers that compare norms.
//
// Squares of tiles of kTile elements are summed in double through the 16 lanes, the tiles' sums in ascending
// order; the result is rounded once to float32. A float32 square is exact in double and does not overflow.
#include <algorithm>
#include <array>
#include <vector>

#include "popsr/exec/block_kernel.h"
#include "popsr/ops/flops.h"
#include "popsr/ops/infer.h"
#include "popsr/ops/loops/blocks.h"
#include "popsr/ops/loops/tiles.h"
#include "popsr/ops/registry.h"

namespace popsr {

namespace {

using kernels::Compute;

class SquaredNorm {
 public:
  explicit SquaredNorm(const EvalSpec& spec)
      : kernels_(spec.kernels),
        dtype_(spec.inputs[0]->dtype),
        elements_(num_elements(spec.inputs[0]->shape)) {}

  void operator()(const BlockRun& run) const {
    const std::int64_t tiles = (elements_ + kTile - 1) / kTile;
    std::vector<double> sums(static_cast<std::size_t>(run.blocks * tiles));
    for_each_tile(run, elements_, elements_, [&](const Block& block, std::int64_t first, std::int64_t n) {
      sums[static_cast<std::size_t>(block.index() * tiles + first / kTile)] = tile(block.in(0), first, n);
    });
    for_each_block(run, [&](const Block& block) {
      double total = 0;
      for (std::int64_t i = 0; i < tiles; ++i) {
        total += sums[static_cast<std::size_t>(block.index() * tiles + i)];
      }
      store_tile(kernels_, Compute::kF64, DType::kFloat32, block.out(), &total, nullptr, 1, nullptr, 0);
    });
  }

 private:
  double tile(const std::byte* in, std::int64_t first, std::int64_t n) const {
    alignas(64) std::array<double, kTile> values;
    load_tile(kernels_, dtype_, Compute::kF64, values.data(),
              in + first * static_cast<std::int64_t>(size_of(dtype_)), n);
    double sum = 0;
    kernels_.reduce[static_cast<std::size_t>(kernels::Reduce::kSumSquare)]
                   [static_cast<std::size_t>(Compute::kF64)](&sum, nullptr, values.data(), 1, n, n);
    return sum;
  }

  const kernels::KernelTable& kernels_;
  DType dtype_;
  std::int64_t elements_;
};

BlockKernel eval_lamb_square(const EvalSpec& spec) { return SquaredNorm(spec); }

std::vector<OutputDef> infer_lamb_square(const InferContext&) { return {{{DType::kFloat32, {}}, {}}}; }

}  // namespace

std::vector<OpDef> lamb_ops() {
  return {{.name = "lamb_square",
           .inputs = {{"t", kFloating}},
           .infer = infer_lamb_square,
           .kernel = {.eval = eval_lamb_square, .flops = flops_per_input<2>},
           .numerics = kRoundsOnce}};
}

}  // namespace popsr
