// Normalisation: group_norm, layer_norm and batch_norm_inference. Dimension 1 holds the channels.
//
// A row is a group of channels of one sample with all later dimensions. In the compute type, every operation
// rounded (kernels::NormKernels):
//   mean = sum(x) / n, variance = sum((x - mean)^2) / n, r = 1 / sqrt(variance + eps), both sums through the
//   16 lanes; unit = (x - mean) * r; y = unit * weight + bias
// batch_norm_inference takes mean and variance of a channel from tensors instead.
#include "popsr/ops/nn/norms.h"

#include <cmath>

#include "popsr/base/error.h"
#include "popsr/exec/block_kernel.h"
#include "popsr/ops/infer.h"
#include "popsr/ops/loops/blocks.h"
#include "popsr/ops/loops/tiles.h"
#include "popsr/ops/registry.h"

namespace popsr {

using kernels::Compute;

NormShape norm_shape(const Shape& t, std::int64_t groups) {
  NormShape shape{.samples = t[0], .channels = t[1], .groups = groups, .inner = 1};
  for (std::size_t d = 2; d < t.size(); ++d) shape.inner *= t[d];
  return shape;
}

Normalisation::Normalisation(const EvalSpec& spec, const TensorType& t, std::int64_t num_groups,
                             double epsilon)
    : NormShape(norm_shape(t.shape, num_groups)),
      kernels(spec.kernels),
      dtype(t.dtype),
      compute(compute_of(t.dtype)),
      norm(compute == Compute::kF64 ? spec.kernels.norm_f64 : spec.kernels.norm_f32),
      eps(epsilon),
      narrow(is_narrow_float(t.dtype)),
      stochastic(spec.stochastic && narrow),
      size(static_cast<std::int64_t>(size_of(t.dtype))),
      wide(static_cast<std::int64_t>(size_of(compute))) {}

const std::byte* Normalisation::widened(const std::byte* from, std::int64_t n, std::byte* to) const {
  if (!narrow) return from;
  load_tile(kernels, dtype, compute, to, from, n);
  return to;
}

Normalisation group_normalisation(const EvalSpec& spec, const TensorType& t) {
  return {spec, t, spec.op.get(kNumGroups), spec.op.get(kEps)};
}

namespace {

constexpr std::size_t kT = 0, kWeight = 1, kBias = 2;
constexpr Attr<double> kEpsilon{"epsilon"};
constexpr Attr<double> kMomentum{"momentum"};

// group_norm, layer_norm

class GroupNorm : Normalisation {
 public:
  explicit GroupNorm(const EvalSpec& spec) : Normalisation(group_normalisation(spec, spec.outputs[0])) {}

  void operator()(const BlockRun& run) const {
    if (elements() == 0) return;
    for_each_range(
        run, {.units = rows(), .grain = together(), .work = elements()},
        [this](const Block& block, std::int64_t begin, std::int64_t end) { range(block, begin, end); });
  }

 private:
  void range(const Block& block, std::int64_t begin, std::int64_t end) const {
    const std::int64_t row_bytes = narrow ? together() * padded(row()) : 0;
    const std::int64_t bytes = row_bytes + 2 * padded(channels) + padded(2 * together());
    auto* const wide_rows = static_cast<std::byte*>(thread_scratch(static_cast<std::size_t>(bytes)));
    std::byte* const parameters = wide_rows + row_bytes;
    std::byte* const stats = parameters + 2 * padded(channels);
    const std::byte* const scale = widened(block.in(1), channels, parameters);
    const std::byte* const shift = widened(block.in(2), channels, parameters + padded(channels));
    for (std::int64_t first = begin; first < end; first += together()) {
      some_rows(block, first, std::min(together(), end - first), wide_rows, stats, scale, shift);
    }
  }

  void some_rows(const Block& block, std::int64_t first, std::int64_t count, std::byte* wide_rows,
                 std::byte* stats, const std::byte* scale, const std::byte* shift) const {
    const std::int64_t at = first * row() * size;
    const std::byte* const x = widened(block.in(0) + at, count * row(), wide_rows);
    std::byte* const out = block.out() + at;
    norm.stats(stats, x, count, row(), eps);
    std::byte* const to = narrow ? wide_rows : out;
    for (std::int64_t r = 0; r < count; ++r) {
      const std::int64_t channel = (first + r) % groups * group() * wide;
      apply(to + r * row() * wide, x + r * row() * wide, stats + 2 * r * wide, scale + channel,
            shift + channel);
    }
    if (!narrow) return;
    store_tile(kernels, compute, dtype, out, to, nullptr, count * row(), block.key(stochastic),
               static_cast<std::uint64_t>(first * row()));
  }

  /// One row; `scale` and `shift` of its first channel.
  void apply(std::byte* to, const std::byte* x, const std::byte* stats, const std::byte* scale,
             const std::byte* shift) const {
    if (inner == 1) return norm.each(to, x, stats, scale, shift, row());
    for (std::int64_t c = 0; c < group(); ++c) {
      const std::int64_t at = c * inner * wide;
      norm.all(to + at, x + at, stats, scale + c * wide, shift + c * wide, inner);
    }
  }
};

BlockKernel eval_group_norm(const EvalSpec& spec) { return GroupNorm(spec); }

void check_channels(const InferContext& context, std::size_t input) {
  require_equal_dtypes(context, 0, input);
  const std::int64_t channels = context.type(0).shape[1];
  if (context.type(input).shape == Shape{channels}) return;
  raise<ShapeError>("{}: {} does not match the channels, got {} for t {}, expected shape [{}]",
                    context.name(), context.op.def->inputs[input].name, describe(context, input),
                    describe(context, 0), channels);
}

void check_eps(const InferContext& context, const Attr<double>& attr) {
  const double eps = context.get(attr);
  if (std::isfinite(eps) && eps >= 0) return;
  raise<AttributeValueError>("{}: {} is not a finite number of at least 0, got {}, expected one",
                             context.name(), attr.name, eps);
}

void check_rank(const InferContext& context, std::size_t least) {
  if (context.type(0).shape.size() >= least) return;
  raise<ShapeError>("{}: too few dimensions, got {}, expected at least {}", context.name(),
                    describe(context, 0), least);
}

std::vector<OutputDef> infer_group_norm(const InferContext& context) {
  check_rank(context, 2);
  check_eps(context, kEps);
  const std::int64_t groups = context.get(kNumGroups);
  const std::int64_t channels = context.type(kT).shape[1];
  if (groups < 1 || channels % groups != 0) {
    raise<AttributeValueError>(
        "{}: num_groups does not divide the channels, got {} groups of {} channels, "
        "expected a divisor",
        context.name(), groups, channels);
  }
  check_channels(context, kWeight);
  check_channels(context, kBias);
  return {{context.type(kT), {}}};
}

/// Gradients: one op for the operand; another for weight and bias, whose sums have the same operands.
void group_norm_grad(Grad& g) {
  const std::vector<NamedAttribute> attrs = {g.same(kNumGroups), g.same(kEps)};
  g.set(kT, g.call("group_norm_grad", {g.x(kT), g.x(kWeight), g.dy()}, attrs));
  if (!g.differentiates(kWeight) && !g.differentiates(kBias)) return;
  const std::vector<GradValue> grads = g.call_all("group_norm_parameter_grads", {g.x(kT), g.dy()}, attrs);
  g.set(kWeight, grads[0]);
  g.set(kBias, grads[1]);
}

// batch_norm_inference

class BatchNorm : Normalisation {
 public:
  explicit BatchNorm(const EvalSpec& spec)
      : Normalisation(spec, spec.outputs[0], spec.outputs[0].shape[1], spec.op.get(kEpsilon)) {}

  void operator()(const BlockRun& run) const {
    if (elements() == 0) return;
    for_each_range(
        run, {.units = rows(), .work = elements()},
        [this](const Block& block, std::int64_t begin, std::int64_t end) { range(block, begin, end); });
  }

 private:
  enum Parameter : std::int64_t { kScale, kBias, kMean, kVariance };

  /// Rows begin..end-1 of one block; a row is one channel of one sample.
  void range(const Block& block, std::int64_t begin, std::int64_t end) const {
    const std::int64_t bytes = 4 * padded(channels) + padded(2 * channels) + (narrow ? padded(inner) : 0);
    auto* const parameters = static_cast<std::byte*>(thread_scratch(static_cast<std::size_t>(bytes)));
    std::byte* const stats = parameters + 4 * padded(channels);
    std::byte* const wide_row = stats + padded(2 * channels);
    for (std::int64_t i = kScale; i <= kVariance; ++i) {
      const auto input = static_cast<std::size_t>(i) + 1;
      load_tile(kernels, dtype, compute, parameters + i * padded(channels), block.in(input), channels);
    }
    compute == Compute::kF64 ? statistics<double>(parameters, stats) : statistics<float>(parameters, stats);
    for (std::int64_t r = begin; r < end; ++r) {
      const std::int64_t at = r * inner * size, channel = r % channels * wide;
      const std::byte* const x = widened(block.in(0) + at, inner, wide_row);
      std::byte* const out = block.out() + at;
      std::byte* const to = narrow ? wide_row : out;
      norm.all(to, x, stats + 2 * channel, parameters + channel, parameters + padded(channels) + channel,
               inner);
      store_tile(kernels, compute, dtype, out, to, nullptr, inner, block.key(stochastic),
                 static_cast<std::uint64_t>(r * inner));
    }
  }

  template <class T>
  void statistics(const std::byte* parameters, std::byte* stats) const {
    const T* const mean = reinterpret_cast<const T*>(parameters + kMean * padded(channels));
    const T* const variance = reinterpret_cast<const T*>(parameters + kVariance * padded(channels));
    T* const to = reinterpret_cast<T*>(stats);
    for (std::int64_t c = 0; c < channels; ++c) {
      to[2 * c] = mean[c];
      to[2 * c + 1] = T{1} / std::sqrt(variance[c] + static_cast<T>(eps));
    }
  }
};

BlockKernel eval_batch_norm(const EvalSpec& spec) { return BatchNorm(spec); }

std::vector<OutputDef> infer_batch_norm(const InferContext& context) {
  check_rank(context, 3);
  check_eps(context, kEpsilon);
  for (std::size_t input = 1; input < 5; ++input) check_channels(context, input);
  return {{context.type(0), {}}};
}

/// Operations of each element: a sum for the mean; a difference, a square and a sum for the variance; two
/// factors and a summand. Operations of each row: two quotients, eps, a root and its inverse.
std::vector<FlopTerm> group_norm_flops(const Ir& ir, const Op& op) {
  const Shape& shape = ir.tensor(op.inputs[kT]).type.shape;
  return {{num_elements(shape), 7}, {shape[0] * op.get(kNumGroups), 5}};
}

OpDef group_norm(std::string_view name, AttrDef num_groups) {
  return {.name = name,
          .inputs = {{"t", kFloating}, {"weight", kFloating}, {"bias", kFloating}},
          .attrs = {std::move(num_groups), optional(kEps, 1e-5)},
          .infer = infer_group_norm,
          .kernel = {.eval = eval_group_norm, .flops = group_norm_flops},
          .grad = {.rule = group_norm_grad},
          .numerics = kRoundsOnce};
}

}  // namespace

std::vector<OpDef> norms_ops() {
  return {
      group_norm("group_norm", required(kNumGroups)),
      group_norm("layer_norm", internal(kNumGroups, 1)),
      {.name = "batch_norm_inference",
       .inputs = {{"t", kFloating},
                  {"scale", kFloating},
                  {"bias", kFloating},
                  {"mean", kFloating},
                  {"var", kFloating}},
       .attrs = {optional(kEpsilon, 1e-5), optional(kMomentum, 0.9)},
       .infer = infer_batch_norm,
       .kernel = {.eval = eval_batch_norm},
       .grad = {.missing = NoGrad::kThrows},
       .numerics = kRoundsOnce},
  };
}

}  // namespace popsr
