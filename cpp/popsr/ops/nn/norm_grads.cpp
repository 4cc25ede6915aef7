// Gradients of group_norm and layer_norm; the statistics are computed again, in the same way.
//
//   dx = ((g - sum(g) / n) - unit * (sum(g * unit) / n)) * r with g = dy * weight, sums over a row through
//   the 16 lanes
//   dweight, dbias = sum of dy * unit, sum of dy: over a sample's elements of the channel through the 16
//   lanes, then over the samples in ascending order, from 0
#include <algorithm>
#include <array>

#include "popsr/exec/block_kernel.h"
#include "popsr/ops/infer.h"
#include "popsr/ops/loops/blocks.h"
#include "popsr/ops/loops/tiles.h"
#include "popsr/ops/nn/norms.h"
#include "popsr/ops/registry.h"

namespace popsr {

namespace {

using kernels::Compute;
using kernels::ElementwiseOp;
using kernels::NoiseKey;

/// The gradient with respect to the operand; inputs t, weight, dy.
class OperandGrad : Normalisation {
 public:
  explicit OperandGrad(const EvalSpec& spec) : Normalisation(group_normalisation(spec, spec.outputs[0])) {}

  void operator()(const BlockRun& run) const {
    if (elements() == 0) return;
    for_each_range(
        run, {.units = rows(), .work = elements()},
        [this](const Block& block, std::int64_t begin, std::int64_t end) { range(block, begin, end); });
  }

 private:
  void range(const Block& block, std::int64_t begin, std::int64_t end) const {
    const std::int64_t bytes = (narrow ? 2 : 1) * padded(row()) + padded(channels) + 2 * padded(2);
    auto* const g = static_cast<std::byte*>(thread_scratch(static_cast<std::size_t>(bytes)));
    std::byte* const weight = g + padded(row());
    std::byte* const stats = weight + padded(channels);
    std::byte* const sums = stats + padded(2);
    std::byte* const wide_row = sums + padded(2);
    load_tile(kernels, dtype, compute, weight, block.in(1), channels);
    for (std::int64_t index = begin; index < end; ++index) {
      const std::int64_t at = index * row() * size;
      std::byte* const out = block.out() + at;
      const std::byte* const x = widened(block.in(0) + at, row(), wide_row);
      const std::byte* const dy = widened(block.in(2) + at, row(), g);
      times_weight(g, dy, weight + index % groups * group() * wide);
      norm.stats(stats, x, 1, row(), eps);
      norm.sums(sums, x, g, stats, row());
      std::byte* const to = narrow ? g : out;
      norm.slope(to, x, g, stats, sums, row());
      store_tile(kernels, compute, dtype, out, to, nullptr, row(), block.key(stochastic),
                 static_cast<std::uint64_t>(index * row()));
    }
  }

  /// g = dy * weight of a row, with the weights from its first channel on.
  void times_weight(std::byte* g, const std::byte* dy, const std::byte* weight) const {
    const auto kernel = [&](ElementwiseOp op) { return kernels.elementwise(op, compute); };
    if (inner == 1) {
      const std::array<const void*, 2> operands = {dy, weight};
      return kernel(ElementwiseOp::kMul)(g, nullptr, operands.data(), row(), nullptr);
    }
    for (std::int64_t c = 0; c < group(); ++c) {
      const double factor = read_scalar(kernels, info(dtype).compute, weight + c * wide);
      const std::array<const void*, 1> operands = {dy + c * inner * wide};
      kernel(ElementwiseOp::kScale)(g + c * inner * wide, nullptr, operands.data(), inner, &factor);
    }
  }
};

/// The gradients with respect to weight and bias; inputs t, dy.
class ParameterGrads : Normalisation {
 public:
  explicit ParameterGrads(const EvalSpec& spec) : Normalisation(group_normalisation(spec, *spec.inputs[0])) {}

  void operator()(const BlockRun& run) const {
    const std::int64_t stride = 2 * rows() * wide;
    std::vector<std::byte> stats(static_cast<std::size_t>(run.blocks * stride));
    for_each_range(run, {.units = rows(), .work = elements()},
                   [&](const Block& block, std::int64_t begin, std::int64_t end) {
                     statistics(block, begin, end, stats.data() + block.index() * stride);
                   });
    // A part of the channels of one block, over all samples.
    const std::int64_t parts = (channels + kRowGrain - 1) / kRowGrain;
    for_each_range(run, {.units = parts, .work = elements()},
                   [&](const Block& block, std::int64_t begin, std::int64_t end) {
                     some_channels(block, begin * kRowGrain, std::min(channels, end * kRowGrain),
                                   stats.data() + block.index() * stride);
                   });
  }

 private:
  static constexpr std::size_t kTileBytes = kTile * sizeof(double);

  void statistics(const Block& block, std::int64_t begin, std::int64_t end, std::byte* stats) const {
    auto* const wide_row =
        static_cast<std::byte*>(thread_scratch(static_cast<std::size_t>(narrow ? padded(row()) : 64)));
    for (std::int64_t index = begin; index < end && elements() > 0;) {
      const std::int64_t count = narrow ? 1 : end - index;
      const std::byte* const from = block.in(0) + index * row() * size;
      norm.stats(stats + 2 * index * wide, widened(from, row(), wide_row), count, row(), eps);
      index += count;
    }
  }

  /// Channels first..last-1, a tile of them at a time.
  void some_channels(const Block& block, std::int64_t first, std::int64_t last,
                     const std::byte* stats) const {
    alignas(64) std::array<std::byte, kTileBytes> scale;
    alignas(64) std::array<std::byte, kTileBytes> shift;
    for (std::int64_t c = first; c < last; c += kTile) {
      const std::int64_t count = std::min(kTile, last - c);
      scale = {};
      shift = {};
      for (std::int64_t sample = 0; sample < samples && inner > 0; ++sample) {
        inner == 1 ? add_elements(block, sample, c, count, stats, scale.data(), shift.data())
                   : add_sums(block, sample, c, count, stats, scale.data(), shift.data());
      }
      store(block, 0, c, count, scale.data());
      store(block, 1, c, count, shift.data());
    }
  }

  /// Channels of one element, of one sample.
  void add_elements(const Block& block, std::int64_t sample, std::int64_t c, std::int64_t count,
                    const std::byte* stats, std::byte* scale, std::byte* shift) const {
    alignas(64) std::array<std::byte, kTileBytes> x;
    alignas(64) std::array<std::byte, kTileBytes> dy;
    const std::int64_t at = sample * channels + c;
    const std::byte* const values = load(block, 0, at, count, x.data());
    const std::byte* const slopes = load(block, 1, at, count, dy.data());
    for (std::int64_t i = 0; i < count;) {
      const std::int64_t index = (c + i) / group();
      const std::int64_t end = std::min(count, (index + 1) * group() - c);
      norm.accumulate(scale + i * wide, shift + i * wide, values + i * wide, slopes + i * wide,
                      stats + 2 * (sample * groups + index) * wide, end - i);
      i = end;
    }
  }

  /// Channels of several elements, of one sample.
  void add_sums(const Block& block, std::int64_t sample, std::int64_t c, std::int64_t count,
                const std::byte* stats, std::byte* scale, std::byte* shift) const {
    auto* const scratch =
        static_cast<std::byte*>(thread_scratch(static_cast<std::size_t>(narrow ? 2 * padded(inner) : 64)));
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t at = (sample * channels + c + i) * inner;
      const std::byte* const values = load(block, 0, at, inner, scratch);
      const std::byte* const slopes = load(block, 1, at, inner, scratch + (narrow ? padded(inner) : 0));
      const std::byte* const row_stats = stats + 2 * (sample * groups + (c + i) / group()) * wide;
      compute == Compute::kF64 ? add_row<double>(values, slopes, row_stats, scale, shift, i)
                               : add_row<float>(values, slopes, row_stats, scale, shift, i);
    }
  }

  template <class T>
  void add_row(const std::byte* values, const std::byte* slopes, const std::byte* stats, std::byte* scale,
               std::byte* shift, std::int64_t i) const {
    std::array<T, 2> sums;
    norm.sums(sums.data(), values, slopes, stats, inner);
    reinterpret_cast<T*>(shift)[i] += sums[0];
    reinterpret_cast<T*>(scale)[i] += sums[1];
  }

  /// Elements of a block, widened into `to` where they are narrow.
  const std::byte* load(const Block& block, std::size_t input, std::int64_t at, std::int64_t n,
                        std::byte* to) const {
    return widened(block.in(input) + at * size, n, to);
  }

  void store(const Block& block, std::size_t output, std::int64_t c, std::int64_t count,
             const std::byte* values) const {
    store_tile(kernels, compute, dtype, block.out(output) + c * size, values, nullptr, count,
               block.key(stochastic, output), static_cast<std::uint64_t>(c));
  }
};

BlockKernel eval_operand_grad(const EvalSpec& spec) { return OperandGrad(spec); }
BlockKernel eval_parameter_grads(const EvalSpec& spec) { return ParameterGrads(spec); }

std::vector<OutputDef> infer_parameter_grads(const InferContext& context) {
  const TensorType& t = context.type(0);
  const OutputDef vector{{t.dtype, {t.shape[1]}}, {}};
  return {vector, vector};
}

}  // namespace

std::vector<OpDef> norm_grads_ops() {
  const std::vector<AttrDef> attrs = {required(kNumGroups), required(kEps)};
  return {
      {.name = "group_norm_grad",
       .inputs = {{"t", kFloating}, {"weight", kFloating}, {"dy", kFloating}},
       .attrs = attrs,
       .infer = same_as_input,
       .kernel = {.eval = eval_operand_grad},
       .grad = {.missing = NoGrad::kThrows},
       .numerics = kRoundsOnce,
       .program = {.internal = true}},
      {.name = "group_norm_parameter_grads",
       .inputs = {{"t", kFloating}, {"dy", kFloating}},
       .attrs = attrs,
       .infer = infer_parameter_grads,
       .kernel = {.eval = eval_parameter_grads},
       .grad = {.missing = NoGrad::kThrows},
       .numerics = kRoundsOnce,
       .program = {.internal = true}},
  };
}

}  // namespace popsr
