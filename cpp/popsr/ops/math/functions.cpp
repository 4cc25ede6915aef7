// More functions, element by element: trigonometric ones, rounding to integers, remainders, clipping, integer
// powers, and the identity.
#include <array>
#include <cmath>
#include <limits>

#include "popsr/base/error.h"
#include "popsr/exec/block_kernel.h"
#include "popsr/ops/flops.h"
#include "popsr/ops/infer.h"
#include "popsr/ops/loops/blocks.h"
#include "popsr/ops/loops/elementwise_walk.h"
#include "popsr/ops/registry.h"

namespace popsr {

namespace {

using kernels::ElementwiseOp;

constexpr double kLog2E = 1.44269504088896340736;
constexpr double kTwoOverRootPi = 1.12837916709551257390;

// Clip: the bounds are rounded to the dtype, so that the result is exact

constexpr Attr<double> kMin{"min"};
constexpr Attr<double> kMax{"max"};

std::vector<OutputDef> infer_clip(const InferContext& context) {
  const double low = context.get(kMin);
  const double high = context.get(kMax);
  if (std::isnan(low) || std::isnan(high)) {
    raise<AttributeValueError>("{}: a bound is not a number, got min={} and max={}, expected numbers",
                               context.name(), low, high);
  }
  return same_as_input(context);
}

ScalarParam rounded_bound(const EvalSpec& spec, const Attr<double>& bound) {
  const double value = spec.op.get(bound);
  const DType dtype = spec.outputs[0].dtype;
  if (!is_float(dtype)) return {.value = value};
  std::array<std::byte, sizeof(double)> bytes = {};
  store_tile(spec.kernels, kernels::Compute::kF64, dtype, bytes.data(), &value, nullptr, 1, nullptr, 0);
  return {.value = read_scalar(spec.kernels, dtype, bytes.data())};
}

template <ElementwiseOp ew>
BlockKernel eval_clip(const EvalSpec& spec) {
  return elementwise_kernel(spec, ew, {.params = {rounded_bound(spec, kMin), rounded_bound(spec, kMax)}});
}

std::vector<AttrDef> bounds() { return {optional(kMin, -HUGE_VAL), optional(kMax, HUGE_VAL)}; }

/// 0 where the output is a bound, even when the input lay exactly there.
GradValue clip_grad(Grad& g) { return g.call("clip_grad", {g.y(), g.dy()}, {g.same(kMin), g.same(kMax)}); }

// Remainders

constexpr Attr<double> kIncrement{"increment"};
constexpr Attr<double> kModulus{"modulus"};

/// The modulus of an integer type is truncated.
std::vector<OutputDef> infer_increment_mod(const InferContext& context) {
  const double increment = context.get(kIncrement);
  const double modulus = context.get(kModulus);
  if (!std::isfinite(increment)) {
    raise<AttributeValueError>("{}: increment is not finite, got {}, expected a finite number",
                               context.name(), increment);
  }
  const DTypeKind kind = info(context.type(0).dtype).kind;
  const double size = kind == DTypeKind::kUInt ? modulus : std::fabs(modulus);
  const bool vanishes = kind == DTypeKind::kFloat ? !(size > 0) : !(size >= 1);
  if (vanishes) {
    raise<AttributeValueError>("{}: modulus is zero in the dtype, got {} for {}, expected another number",
                               context.name(), modulus, describe(context, 0));
  }
  return same_as_input(context);
}

BlockKernel eval_increment_mod(const EvalSpec& spec) {
  const auto param = [&](const Attr<double>& attr) { return ScalarParam{.value = spec.op.get(attr)}; };
  return elementwise_kernel(spec, ElementwiseOp::kIncrementMod,
                            {.params = {param(kIncrement), param(kModulus)}});
}

// Round

enum class Half : std::uint8_t { kEven, kAway };
constexpr Choice<Half> kHalves[] = {{"even", Half::kEven}, {"away", Half::kAway}};
constexpr ChoiceAttr<Half> kHalf{"half", kHalves};

BlockKernel eval_round(const EvalSpec& spec) {
  const bool even = spec.op.get(kHalf) == Half::kEven;
  return elementwise_kernel(spec, even ? ElementwiseOp::kRoundEven : ElementwiseOp::kRoundAway);
}

// Integer powers, reciprocals

constexpr Attr<std::int64_t> kExponent{"exponent"};

std::vector<OutputDef> infer_integer_pow(const InferContext& context) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  const std::int64_t exponent = context.get(kExponent);
  const std::int64_t least = is_float(context.type(0).dtype) ? -kMost : 0;
  if (exponent < least || exponent > kMost) {
    raise<AttributeValueError>("{}: exponent is out of range, got {} for {}, expected {} to {}",
                               context.name(), exponent, describe(context, 0), least, kMost);
  }
  return same_as_input(context);
}

BlockKernel eval_integer_pow(const EvalSpec& spec) {
  const auto exponent = static_cast<double>(spec.op.get(kExponent));
  return elementwise_kernel(spec, ElementwiseOp::kIntegerPow, {.params = {{.value = exponent}}});
}

/// dy * n * x^(n - 1)
GradValue integer_pow_grad(Grad& g) {
  const std::int64_t n = g.get(kExponent);
  if (n == 0) return g.zeros_like_input(0);
  return g.scale(g.dy() * g.call("integer_pow", {g.x()}, {kExponent(n - 1)}), static_cast<double>(n));
}

BlockKernel eval_square(const EvalSpec& spec) {
  return elementwise_kernel(spec, ElementwiseOp::kMul, {.operands = {0, 0}});
}

std::vector<OpDef> power_ops() {
  return {
      {.name = "integer_pow",
       .inputs = {{"t", kNumbers}},
       .attrs = {required(kExponent)},
       .infer = infer_integer_pow,
       .kernel = {.eval = eval_integer_pow, .elementwise = ElementwiseOp::kIntegerPow},
       .grad = per_input({integer_pow_grad}),
       .numerics = kRoundsOnce},
      {.name = "square",
       .inputs = {{"t", kNumbers}},
       .infer = same_as_input,
       .kernel = {.eval = eval_square, .flops = flops_per_input<1>},
       .grad = per_input({[](Grad& g) { return g.scale(g.dy() * g.x(), 2); }}),
       .numerics = kRoundsOnce},
      unary_op(
          "reciprocal", kFloating, elementwise_op<ElementwiseOp::kReciprocal>,
          [](Grad& g) { return -(g.dy() * (g.y() * g.y())); }, Rounding::kOnce),
  };
}

/// The first operand alone has a gradient: dy where the sign is kept, -dy where it is turned, 0 at 0.
GradValue copysign_grad(Grad& g) {
  return g.sum_to_input(0, g.dy() * (g.call("sign", {g.x(0)}) * g.call("sign", {g.y()})));
}

// Identity

BlockKernel eval_copy(const EvalSpec& spec) { return copy_kernel(spec); }

std::vector<OpDef> analytic_ops() {
  const OpDef increment_mod{
      .name = "increment_mod",
      .inputs = {{"t", kNumbers}},
      .attrs = {required(kIncrement), required(kModulus)},
      .infer = infer_increment_mod,
      .kernel = {.eval = eval_increment_mod, .elementwise = ElementwiseOp::kIncrementMod},
      .numerics = kRoundsOnce};
  return {
      unary_op(
          "sin", kFloating, elementwise_op<ElementwiseOp::kSin>,
          [](Grad& g) { return g.dy() * g.call("cos", {g.x()}); }, Rounding::kOnce),
      unary_op(
          "cos", kFloating, elementwise_op<ElementwiseOp::kCos>,
          [](Grad& g) { return -(g.dy() * g.call("sin", {g.x()})); }, Rounding::kOnce),
      unary_op(
          "log2", kFloating, elementwise_op<ElementwiseOp::kLog2>,
          // dy / (x ln 2)
          [](Grad& g) { return g.scale(g.dy(), kLog2E) / g.x(); }, Rounding::kOnce),
      unary_op(
          "rsqrt", kFloating, elementwise_op<ElementwiseOp::kRsqrt>,
          // -dy y / (2 x)
          [](Grad& g) { return g.scale(g.dy() * g.y() / g.x(), -0.5); }, Rounding::kOnce),
      unary_op(
          "erf", kFloating, elementwise_op<ElementwiseOp::kErf>,
          // dy * 2 / sqrt(pi) * e^(-x^2)
          [](Grad& g) { return g.scale(g.dy(), kTwoOverRootPi) * g.call("exp", {-(g.x() * g.x())}); },
          Rounding::kOnce),
      unary_op("floor", kNumbers, elementwise_op<ElementwiseOp::kFloor>, zero_gradient, Rounding::kNone),
      unary_op("ceil", kNumbers, elementwise_op<ElementwiseOp::kCeil>, zero_gradient, Rounding::kNone),
      unary_op("trunc", kNumbers, elementwise_op<ElementwiseOp::kTrunc>, zero_gradient, Rounding::kNone),
      {.name = "round",
       .inputs = {{"t", kNumbers}},
       .attrs = {optional(kHalf, Half::kEven)},
       .infer = same_as_input,
       .kernel = {.eval = eval_round, .elementwise = ElementwiseOp::kRoundEven},
       .grad = per_input({zero_gradient})},
      {.name = "copysign",
       .inputs = {{"t", kFloating}, {"sign", kFloating}},
       .infer = broadcast_binary,
       .kernel = elementwise_op<ElementwiseOp::kCopySign>,
       .grad = per_input({copysign_grad})},
      unary_op("sign", kNumbers, elementwise_op<ElementwiseOp::kSign>, zero_gradient, Rounding::kNone),
      {.name = "clip",
       .inputs = {{"t", kNumbers}},
       .attrs = bounds(),
       .infer = infer_clip,
       .kernel = {.eval = eval_clip<ElementwiseOp::kClip>, .elementwise = ElementwiseOp::kClip},
       .grad = per_input({clip_grad})},
      {.name = "clip_grad",
       .inputs = {{"y", kFloating}, {"dy", kFloating}},
       .attrs = bounds(),
       .infer = all_same,
       .kernel = {.eval = eval_clip<ElementwiseOp::kClipGrad>, .elementwise = ElementwiseOp::kClipGrad},
       .program = {.internal = true}},
      {.name = "fmod",
       .inputs = {{"lhs", kNumbers}, {"rhs", kNumbers}},
       .infer = broadcast_binary,
       .kernel = elementwise_op<ElementwiseOp::kFmod>,
       // The dividend alone has a gradient, as in the reference.
       .grad = per_input({[](Grad& g) { return g.sum_to_input(0, g.dy()); }})},
      increment_mod,
      inplace_form(increment_mod, "increment_mod_"),
      {.name = "identity",
       .inputs = {{"t"}},
       .infer = same_as_input,
       .kernel = {.eval = eval_copy},
       .grad = per_input({[](Grad& g) { return g.dy(); }}),
       .memory = {.same_bytes = true}},
  };
}

}  // namespace

std::vector<OpDef> functions_ops() {
  std::vector<OpDef> ops = analytic_ops();
  for (OpDef& op : power_ops()) ops.push_back(std::move(op));
  return ops;
}

}  // namespace popsr
