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
        run, {.units = rows(), .grain = together(), .work = elements()},
        [this](const Block& block, std::int64_t begin, std::int64_t end) { range(block, begin, end); });
  }

 private:
  struct Room {
    std::byte *g, *x, *weight, *stats, *sums;
  };

  /// True if kernels apply the weights; elsewhere g is computed first.
  bool weighs() const { return inner == 1 || inner % 16 == 0; }

  void range(const Block& block, std::int64_t begin, std::int64_t end) const {
    const std::int64_t rows_bytes = together() * padded(row()), pairs_bytes = padded(2 * together());
    const std::int64_t bytes = (narrow ? 2 : 1) * rows_bytes + padded(channels) + 2 * pairs_bytes;
    auto* const weight = static_cast<std::byte*>(thread_scratch(static_cast<std::size_t>(bytes)));
    std::byte* const stats = weight + padded(channels);
    std::byte* const g = stats + 2 * pairs_bytes;
    const Room room{g, g + rows_bytes, weight, stats, stats + pairs_bytes};
    load_tile(kernels, dtype, compute, weight, block.in(1), channels);
    for (std::int64_t first = begin; first < end; first += together())
      some_rows(block, first, std::min(together(), end - first), room);
  }

  void some_rows(const Block& block, std::int64_t first, std::int64_t count, const Room& room) const {
    const std::int64_t at = first * row() * size;
    std::byte* const out = block.out() + at;
    const std::byte* const x = widened(block.in(0) + at, count * row(), room.x);
    const std::byte* dy = widened(block.in(2) + at, count * row(), room.g);
    norm.stats(room.stats, x, count, row(), eps);
    kernels::NormSlopes g{.dy = dy, .weight = room.weight, .groups = groups, .group = first, .run = inner};
    if (!weighs()) {
      for (std::int64_t r = 0; r < count; ++r) {
        times_weight(room.g + r * row() * wide, dy + r * row() * wide,
                     room.weight + (first + r) % groups * group() * wide);
      }
      dy = room.g;
      g = {.dy = dy};
    }
    norm.sums(room.sums, x, g, room.stats, count, row(), 0, 1);
    std::byte* const to = narrow ? room.g : out;
    for (std::int64_t r = 0; r < count; ++r, ++g.group) {
      const std::int64_t from = r * row() * wide;
      g.dy = dy + from;
      norm.slope(to + from, x + from, g, room.stats + 2 * r * wide, room.sums + 2 * r * wide, row());
    }
    store_tile(kernels, compute, dtype, out, to, nullptr, count * row(), block.key(stochastic),
               static_cast<std::uint64_t>(first * row()));
  }

  /// g = dy * weight of a row, with the weights from its first channel on.
  void times_weight(std::byte* g, const std::byte* dy, const std::byte* weight) const {
    const auto scale = kernels.elementwise(ElementwiseOp::kScale, compute);
    for (std::int64_t c = 0; c < group(); ++c) {
      const double factor = read_scalar(kernels, info(dtype).compute, weight + c * wide);
      const std::array<const void*, 1> operands = {dy + c * inner * wide};
      scale(g + c * inner * wide, nullptr, operands.data(), inner, &factor);
    }
  }
};

/// The gradients with respect to weight and bias; inputs t, dy.
class ParameterGrads : Normalisation {
 public:
  explicit ParameterGrads(const EvalSpec& spec) : Normalisation(group_normalisation(spec, *spec.inputs[0])) {}

  void operator()(const BlockRun& run) const { inner == 1 ? by_elements(run) : by_rows(run); }

 private:
  static constexpr std::size_t kTileBytes = kTile * sizeof(double);
  static constexpr auto kTileSize = static_cast<std::size_t>(kTile);

  /// Channels of one element: statistics of all rows, then a part of the channels over all samples.
  void by_elements(const BlockRun& run) const {
    const std::int64_t stride = 2 * rows() * wide;
    std::vector<std::byte> stats(static_cast<std::size_t>(run.blocks * stride));
    for_each_range(
        run, {.units = rows(), .grain = together(), .work = elements()},
        [&](const Block& block, std::int64_t begin, std::int64_t end) {
          for_some_rows(block, 1, begin, end, [&](std::int64_t first, std::int64_t count, auto x, auto) {
            norm.stats(stats.data() + block.index() * stride + 2 * first * wide, x, count, row(), eps);
          });
        });
    for_each_part(run, elements(), [&](const Block& block, std::int64_t c, std::int64_t count) {
      alignas(64) std::array<std::byte, kTileBytes> scale = {};
      alignas(64) std::array<std::byte, kTileBytes> shift = {};
      const std::int64_t some = narrow ? 1 : samples;
      for (std::int64_t sample = 0; sample < samples; sample += some) {
        add_elements(block, sample, some, c, count, stats.data() + block.index() * stride, scale.data(),
                     shift.data());
      }
      store(block, 0, c, count, scale.data());
      store(block, 1, c, count, shift.data());
    });
  }

  /// Channels of several elements: the sums of each channel of each sample, then over all samples.
  void by_rows(const BlockRun& run) const {
    const std::int64_t stride = 2 * samples * channels * wide;
    std::vector<std::byte> sums(static_cast<std::size_t>(run.blocks * stride));
    for_each_range(run, {.units = rows(), .grain = together(), .work = elements()},
                   [&](const Block& block, std::int64_t begin, std::int64_t end) {
                     alignas(64) std::array<std::byte, 8 * sizeof(double)> stats;
                     std::byte* const to = sums.data() + block.index() * stride;
                     for_some_rows(block, 2, begin, end,
                                   [&](std::int64_t first, std::int64_t count, auto x, auto dy) {
                                     norm.stats(stats.data(), x, count, row(), eps);
                                     norm.sums(to + 2 * first * group() * wide, x, {.dy = dy}, stats.data(),
                                               count * group(), inner, 0, group());
                                   });
                   });
    for_each_part(run, samples * channels, [&](const Block& block, std::int64_t c, std::int64_t count) {
      const std::byte* const from = sums.data() + block.index() * stride;
      compute == Compute::kF64 ? add_samples<double>(block, from, c, count)
                               : add_samples<float>(block, from, c, count);
    });
  }

  /// Calls body(first, count, x, dy) for the rows begin .. end-1, some at a time; dy is null for one input.
  template <class Body>
  void for_some_rows(const Block& block, int inputs, std::int64_t begin, std::int64_t end,
                     const Body& body) const {
    if (elements() == 0) return;
    const std::int64_t bytes = narrow ? together() * padded(row()) : 0;
    auto* const room = static_cast<std::byte*>(thread_scratch(static_cast<std::size_t>(inputs * bytes + 64)));
    for (std::int64_t first = begin; first < end; first += together()) {
      const std::int64_t count = std::min(together(), end - first), at = first * row();
      const std::byte* const x = load(block, 0, at, count * row(), room);
      body(first, count, x, inputs == 1 ? nullptr : load(block, 1, at, count * row(), room + bytes));
    }
  }

  /// Calls body(block, c, count) for the channels, a tile of them at most.
  template <class Body>
  void for_each_part(const BlockRun& run, std::int64_t work, const Body& body) const {
    const std::int64_t parts = (channels + kRowGrain - 1) / kRowGrain;
    for_each_range(run, {.units = parts, .work = work},
                   [&](const Block& block, std::int64_t begin, std::int64_t end) {
                     const std::int64_t last = std::min(channels, end * kRowGrain);
                     for (std::int64_t c = begin * kRowGrain; c < last; c += kTile)
                       body(block, c, std::min(kTile, last - c));
                   });
  }

  /// Channels of one element, of `some` samples, of one where elements are narrow.
  void add_elements(const Block& block, std::int64_t sample, std::int64_t some, std::int64_t c,
                    std::int64_t count, const std::byte* stats, std::byte* scale, std::byte* shift) const {
    alignas(64) std::array<std::byte, kTileBytes> x;
    alignas(64) std::array<std::byte, kTileBytes> dy;
    const std::int64_t at = sample * channels + c;
    const std::byte* const values = load(block, 0, at, count, x.data());
    const std::byte* const slopes = load(block, 1, at, count, dy.data());
    for (std::int64_t i = 0; i < count;) {
      const std::int64_t index = (c + i) / group();
      const std::int64_t end = std::min(count, (index + 1) * group() - c);
      norm.accumulate(scale + i * wide, shift + i * wide, values + i * wide, slopes + i * wide,
                      stats + 2 * (sample * groups + index) * wide, some, end - i, channels, 2 * groups);
      i = end;
    }
  }

  template <class T>
  void add_samples(const Block& block, const std::byte* from, std::int64_t c, std::int64_t count) const {
    alignas(64) std::array<T, kTileSize> scale = {};
    alignas(64) std::array<T, kTileSize> shift = {};
    for (std::int64_t sample = 0; sample < samples && inner > 0; ++sample) {
      const T* const pairs = reinterpret_cast<const T*>(from) + 2 * (sample * channels + c);
      for (std::int64_t i = 0; i < count; ++i) {
        shift[static_cast<std::size_t>(i)] += pairs[2 * i];
        scale[static_cast<std::size_t>(i)] += pairs[2 * i + 1];
      }
    }
    store(block, 0, c, count, reinterpret_cast<const std::byte*>(scale.data()));
    store(block, 1, c, count, reinterpret_cast<const std::byte*>(shift.data()));
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
