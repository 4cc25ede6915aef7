// var_updates: ops that modify their first input, a variable or accumulator, and return an alias of it.
//
// All compute in t's compute type: X of another dtype is converted to that (an fp32 X keeps its precision in
// a bf16 t) and the result is rounded once. Formulas are sums of rounded products, so they fuse with matrix
// products.
#include <algorithm>
#include <array>

#include "popsr/exec/block_kernel.h"
#include "popsr/exec/product_kernel.h"
#include "popsr/ops/infer.h"
#include "popsr/ops/loops/accumulated_product.h"
#include "popsr/ops/loops/blocks.h"
#include "popsr/ops/loops/elementwise_walk.h"
#include "popsr/ops/registry.h"
#include "popsr/ops/scalar_params.h"

namespace popsr {
namespace {

using kernels::ElementwiseOp;

constexpr ScalarOperand kF{{"f"}, 2};  ///< Factor of X, or of a moving average.
constexpr ScalarOperand kStep{{"step"}, 2};
constexpr ScalarOperand kScaleFactor{{"f"}, 1};  ///< Factor of accumulator_scale_, which has no X.

std::vector<OutputDef> infer_update(const InferContext& context) {
  require_equal_shapes(context, 0, 1);
  return {{context.type(0), context.tensor(0).meta_shape}};
}

// accumulate_, accumulate_mean_

std::vector<OutputDef> infer_accumulate(const InferContext& context) {
  check_scalar(context, kF, false);
  return infer_update(context);
}

/// t = 1*t + f*X; a product with 1 is exact. A constant 0 leaves t alone, whatever X holds.
BlockKernel accumulate(const EvalSpec& spec) {
  if (is_zero(spec.op, kF)) return copy_kernel(spec);
  return elementwise_kernel(spec, ElementwiseOp::kScaledAdd,
                            {.operands = {0, 1}, .params = {{.value = 1.0}, scalar_param(spec, kF, 1.0)}});
}

PartitionId accumulate_partition(const RuleContext& context, std::size_t output) {
  if (is_zero(context.op, kF)) return context.table.meet(context.inputs[0], context.exec);
  return meet_of_inputs(context, output);
}

std::vector<OutputDef> infer_accumulate_mean(const InferContext& context) {
  check_scalar(context, kStep, true);
  return infer_update(context);
}

/// b = 1 / (step + 1); alpha = 1 - b, beta = b.
void mean_factors_f32(double* p) {
  const float b = 1.0F / (static_cast<float>(p[1]) + 1.0F);
  p[0] = static_cast<double>(1.0F - b);
  p[1] = static_cast<double>(b);
}
void mean_factors_f64(double* p) {
  p[1] = 1.0 / (p[1] + 1.0);
  p[0] = 1.0 - p[1];
}
using Prepare = void (*)(double*);
Prepare mean_factors(DType dtype) {
  return info(dtype).compute == DType::kFloat64 ? mean_factors_f64 : mean_factors_f32;
}

/// hi = p[0]*in0 + p[1]*in1; with a factor of 0 in0 counts as zeros, so that infinities and NaNs do not stay.
void mean(const TileArgs& args) {
  const auto kernel = args.kernels.elementwise(ElementwiseOp::kScaledAdd, args.compute);
  alignas(64) static constexpr std::array<std::byte, kTile * sizeof(double)> kZeros = {};
  const void* const terms[] = {args.p[0] == 0 ? kZeros.data() : args.in[0], args.in[1]};
  kernel(args.hi, args.lo, terms, args.n, args.p);
}

/// t = (1-b)*t + b*X; b is 1 at step 0.
BlockKernel accumulate_mean(const EvalSpec& spec) {
  return elementwise_kernel(spec, mean,
                            {.operands = {0, 1},
                             .params = {{.value = 0.0}, scalar_param(spec, kStep, 0.0)},
                             .prepare = mean_factors(spec.outputs[0].dtype),
                             .residual = true});
}

/// At step 0 t is overwritten, whatever it held.
ZeroFacts mean_zeros(const Op& op, const std::vector<bool>& zeros) {
  const bool is_tensor = kStep.input < op.inputs.size() && op.inputs[kStep.input] != kNone;
  return {.ignores = is_tensor ? zeros[kStep.input] : is_zero(op, kStep)};
}

std::optional<ProductFusion> accumulate_fusion(const EvalSpec& spec) {
  if (is_zero(spec.op, kF)) return std::nullopt;
  return accumulated_product(spec, {.beta = scalar_param(spec, kF, 1.0)});
}
std::optional<ProductFusion> accumulate_mean_fusion(const EvalSpec& spec) {
  return accumulated_product(spec, {.beta = scalar_param(spec, kStep, 0.0),
                                    .prepare = mean_factors(spec.outputs[0].dtype),
                                    .zero_overwrites = true});
}

// Squares and moving averages

/// hi = p[0]*in0 + p[1]*in1^2; the square is rounded before it is scaled.
void add_square(const TileArgs& args) {
  alignas(64) std::array<std::byte, kTile * sizeof(double)> square;
  const auto kernel = [&args](ElementwiseOp ew) { return args.kernels.elementwise(ew, args.compute); };
  const void* const twice[] = {args.in[1], args.in[1]};
  kernel(ElementwiseOp::kMul)(square.data(), nullptr, twice, args.n, nullptr);
  const void* const terms[] = {args.in[0], square.data()};
  kernel(ElementwiseOp::kScaledAdd)(args.hi, args.lo, terms, args.n, args.p);
}

/// t = t + f*X^2. A constant 0 leaves t alone, whatever X holds.
BlockKernel accumulate_square(const EvalSpec& spec) {
  if (is_zero(spec.op, kF)) return copy_kernel(spec);
  return elementwise_kernel(spec, add_square,
                            {.operands = {0, 1},
                             .params = {{.value = 1.0}, scalar_param(spec, kF, 1.0)},
                             .residual = true,
                             .work = 2});
}

std::vector<OutputDef> infer_moving_average(const InferContext& context) {
  check_scalar(context, kF, true);
  return infer_update(context);
}

/// alpha = f, beta = 1 - f.
void average_factors_f32(double* p) {
  p[0] = static_cast<double>(static_cast<float>(p[1]));
  p[1] = static_cast<double>(1.0F - static_cast<float>(p[0]));
}
void average_factors_f64(double* p) {
  p[0] = p[1];
  p[1] = 1.0 - p[0];
}
Prepare average_factors(DType dtype) {
  return info(dtype).compute == DType::kFloat64 ? average_factors_f64 : average_factors_f32;
}

/// t = f*t + (1-f)*X.
BlockKernel moving_average(const EvalSpec& spec) {
  return elementwise_kernel(spec, ElementwiseOp::kScaledAdd,
                            {.operands = {0, 1},
                             .params = {{.value = 0.0}, scalar_param(spec, kF, 0.0)},
                             .prepare = average_factors(spec.outputs[0].dtype)});
}

std::optional<ProductFusion> moving_average_fusion(const EvalSpec& spec) {
  return accumulated_product(
      spec, {.beta = scalar_param(spec, kF, 0.0), .prepare = average_factors(spec.outputs[0].dtype)});
}

/// t = f*t + (1-f)*X^2.
BlockKernel moving_average_square(const EvalSpec& spec) {
  return elementwise_kernel(spec, add_square,
                            {.operands = {0, 1},
                             .params = {{.value = 0.0}, scalar_param(spec, kF, 0.0)},
                             .prepare = average_factors(spec.outputs[0].dtype),
                             .residual = true,
                             .work = 2});
}

// accumulator_scale_, accumulator_zero_

std::vector<OutputDef> infer_scale(const InferContext& context) {
  check_scalar(context, kScaleFactor, true);
  return {{context.type(0), context.tensor(0).meta_shape}};
}

BlockKernel fill_zeros(const EvalSpec& spec) {
  const std::size_t bytes = bytes_of(spec.outputs[0]);
  return per_block([bytes](const Block& block) { std::fill_n(block.out(), bytes, std::byte{0}); });
}

/// t = f*t. A constant 0 writes zeros, which clears NaN and infinity.
BlockKernel accumulator_scale(const EvalSpec& spec) {
  if (is_zero(spec.op, kScaleFactor)) return fill_zeros(spec);
  return elementwise_kernel(spec, ElementwiseOp::kScale,
                            {.operands = {0}, .params = {scalar_param(spec, kScaleFactor, 1.0)}});
}

PartitionId scale_partition(const RuleContext& context, std::size_t output) {
  return is_zero(context.op, kScaleFactor) ? equal_everywhere(context, output)
                                           : meet_of_inputs(context, output);
}

ZeroFacts scale_zeros(const Op& op, const std::vector<bool>&) {
  return {.clears = is_zero(op, kScaleFactor), .ignores = is_zero(op, kScaleFactor)};
}

ZeroFacts always_zeros(const Op&, const std::vector<bool>&) { return {.clears = true, .ignores = true}; }

// copy_var_update_

/// float8 and carriers are only copied: their conversions are ops of their own.
std::vector<OutputDef> infer_copy(const InferContext& context) {
  constexpr DTypeSet kCopied = kFloat8 | kCarriers;
  if (kCopied.contains(context.type(0).dtype) || kCopied.contains(context.type(1).dtype)) {
    require_equal_dtypes(context, 0, 1);
  }
  return infer_update(context);
}

/// t = X; between equal dtypes the bits are kept.
BlockKernel copy_update(const EvalSpec& spec) { return convert_kernel(spec, 1); }

ZeroFacts copy_zeros(const Op&, const std::vector<bool>& zeros) { return {.clears = zeros[1]}; }

/// Accumulators have to be numbers; factors may be of any of these dtypes.
InputDef target(DTypeSet dtypes = kNumbers) { return {.name = "t", .dtypes = dtypes}; }
InputDef source() { return {.name = "X", .dtypes = kNumbers}; }

std::vector<Effect> modifies_t() { return {{.input = 0, .output = 0}}; }

}  // namespace

std::vector<OpDef> var_updates_ops() {
  return {
      {.name = "accumulate_",
       .inputs = {target(), source(), scalar_input(kF)},
       .attrs = {scalar_attr(kF)},
       .infer = infer_accumulate,
       .kernel = {.eval = accumulate, .fusion = accumulate_fusion, .elementwise = ElementwiseOp::kAdd},
       .replicas = {.partition = accumulate_partition,
                    .rule_text = "meet of inputs; partition of t with a constant factor 0"},
       .memory = {.effects = modifies_t()},
       .numerics = kLinear},
      {.name = "accumulate_square_",
       .inputs = {target(), source(), scalar_input(kF)},
       .attrs = {scalar_attr(kF)},
       .infer = infer_accumulate,
       .kernel = {.eval = accumulate_square},
       .replicas = {.partition = accumulate_partition,
                    .rule_text = "meet of inputs; partition of t with a constant factor 0"},
       .memory = {.effects = modifies_t()},
       .numerics = kPointwise},
      {.name = "accumulate_moving_average_",
       .inputs = {target(kFloating), source(), scalar_input(kF)},
       .attrs = {scalar_attr(kF)},
       .infer = infer_moving_average,
       .kernel = {.eval = moving_average, .fusion = moving_average_fusion},
       .memory = {.effects = modifies_t()},
       .numerics = kPointwise},
      {.name = "accumulate_moving_average_square_",
       .inputs = {target(kFloating), source(), scalar_input(kF)},
       .attrs = {scalar_attr(kF)},
       .infer = infer_moving_average,
       .kernel = {.eval = moving_average_square},
       .memory = {.effects = modifies_t()},
       .numerics = kPointwise},
      {.name = "accumulate_mean_",
       .inputs = {target(kFloating), source(), scalar_input(kStep)},
       .attrs = {scalar_attr(kStep)},
       .infer = infer_accumulate_mean,
       .kernel = {.eval = accumulate_mean, .fusion = accumulate_mean_fusion},
       .memory = {.effects = modifies_t(), .zeros = mean_zeros},
       .numerics = kPointwise},
      {.name = "accumulator_scale_",
       .inputs = {target(), scalar_input(kScaleFactor)},
       .attrs = {scalar_attr(kScaleFactor)},
       .infer = infer_scale,
       .kernel = {.eval = accumulator_scale, .elementwise = ElementwiseOp::kScale},
       .replicas = {.partition = scale_partition,
                    .rule_text = "meet of inputs; with a constant factor 0 equal everywhere"},
       .memory = {.effects = modifies_t(), .zeros = scale_zeros},
       .numerics = kRoundsOnce},
      {.name = "accumulator_zero_",
       .inputs = {{.name = "t", .influences = false}},
       .infer = same_as_input,
       .kernel = {.eval = fill_zeros},
       .replicas = {.partition = equal_everywhere},
       .memory = {.effects = modifies_t(), .zeros = always_zeros}},
      {.name = "copy_var_update_",
       .inputs = {{.name = "t", .influences = false}, {"X"}},
       .infer = infer_copy,
       .kernel = {.eval = copy_update},
       .memory = {.effects = modifies_t(), .zeros = copy_zeros},
       .numerics = {.rounding = Rounding::kOnce, .linear = Linear::kSum, .pointwise = true}},
  };
}

}  // namespace popsr
