// More functions, element by element: trigonometric ones, rounding to integers, remainders, clipping, and the
// identity.
#include <array>
#include <cmath>

#include "popsr/base/error.h"
#include "popsr/ops/infer.h"
#include "popsr/ops/loops/blocks.h"
#include "popsr/ops/loops/elementwise_walk.h"
#include "popsr/ops/registry.h"

namespace popsr {

namespace {

using kernels::Ew;

// ---- sin, cos, log2, rsqrt

void sin_grad(GradContext& g) {
  if (differentiates(g, 0)) g.set(0, g.emit("mul", {g.cotangent(0), g.emit("cos", {g.in(0)})}));
}

void cos_grad(GradContext& g) {
  if (!differentiates(g, 0)) return;
  g.set(0, g.emit("negate", {g.emit("mul", {g.cotangent(0), g.emit("sin", {g.in(0)})})}));
}

/// dy / (x ln 2)
void log2_grad(GradContext& g) {
  constexpr double kLog2E = 1.44269504088896340736;
  if (!differentiates(g, 0)) return;
  g.set(0, g.emit("div", {g.emit("scale", {g.cotangent(0)}, {{"factor", kLog2E}}), g.in(0)}));
}

/// -dy y / (2 x)
void rsqrt_grad(GradContext& g) {
  if (!differentiates(g, 0)) return;
  const TensorId quotient = g.emit("div", {g.emit("mul", {g.cotangent(0), g.out(0)}), g.in(0)});
  g.set(0, g.emit("scale", {quotient}, {{"factor", -0.5}}));
}

// ---- clip: the bounds are rounded to the dtype, so that the result is exact

std::vector<OutputDef> infer_clip(const InferContext& context) {
  const double low = context.op.attr<double>("min");
  const double high = context.op.attr<double>("max");
  if (std::isnan(low) || std::isnan(high)) {
    raise<AttributeValueError>("{}: a bound is not a number, got min={} and max={}, expected numbers",
                               context.name(), low, high);
  }
  return same_as_input(context);
}

ScalarParam rounded_bound(const EvalSpec& spec, std::string_view name) {
  const double value = spec.op.attr<double>(name);
  const DType dtype = spec.outputs[0].dtype;
  if (!is_float(dtype)) return {.value = value};
  std::array<std::byte, sizeof(double)> bytes = {};
  store_tile(spec.kernels, kernels::Compute::kF64, dtype, bytes.data(), &value, nullptr, 1, nullptr, 0);
  return {.value = read_scalar(spec.kernels, dtype, bytes.data())};
}

template <Ew ew>
BlockKernel eval_clip(const EvalSpec& spec) {
  return elementwise_kernel(spec, ew, {.params = {rounded_bound(spec, "min"), rounded_bound(spec, "max")}});
}

std::vector<AttrDef> bounds() {
  return {optional("min", AttrType::kFloat, -HUGE_VAL), optional("max", AttrType::kFloat, HUGE_VAL)};
}

/// 0 where the output is a bound, even when the input lay exactly there.
void clip_grad(GradContext& g) {
  if (!differentiates(g, 0)) return;
  g.set(0, g.emit("clip_grad", {g.out(0), g.cotangent(0)},
                  {{"min", g.op().attr<double>("min")}, {"max", g.op().attr<double>("max")}}));
}

// ---- remainders

/// The dividend alone has a gradient, as in the reference.
void fmod_grad(GradContext& g) {
  if (differentiates(g, 0)) g.set(0, g.sum_to(g.cotangent(0), g.in_type(0).shape));
}

/// The modulus of an integer type is truncated.
std::vector<OutputDef> infer_increment_mod(const InferContext& context) {
  const double increment = context.op.attr<double>("increment");
  const double modulus = context.op.attr<double>("modulus");
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
  const auto attr = [&](std::string_view name) { return ScalarParam{.value = spec.op.attr<double>(name)}; };
  return elementwise_kernel(spec, Ew::kIncrementMod, {.params = {attr("increment"), attr("modulus")}});
}

// ---- identity

BlockKernel eval_copy(const EvalSpec& spec) { return copy_kernel(spec); }

void identity_grad(GradContext& g) {
  if (differentiates(g, 0)) g.set(0, g.cotangent(0));
}

}  // namespace

std::vector<OpDef> elementary_ops() {
  const OpDef increment_mod{
      .name = "increment_mod",
      .inputs = {{"t", kNumbers}},
      .attrs = {required("increment", AttrType::kFloat), required("modulus", AttrType::kFloat)},
      .infer = infer_increment_mod,
      .eval = eval_increment_mod,
      .rounding = Rounding::kOnce};
  return {
      unary_op("sin", kFloating, elementwise<Ew::kSin>, sin_grad, Rounding::kOnce),
      unary_op("cos", kFloating, elementwise<Ew::kCos>, cos_grad, Rounding::kOnce),
      unary_op("log2", kFloating, elementwise<Ew::kLog2>, log2_grad, Rounding::kOnce),
      unary_op("rsqrt", kFloating, elementwise<Ew::kRsqrt>, rsqrt_grad, Rounding::kOnce),
      unary_op("floor", kNumbers, elementwise<Ew::kFloor>, zero_gradient, Rounding::kNone),
      unary_op("ceil", kNumbers, elementwise<Ew::kCeil>, zero_gradient, Rounding::kNone),
      unary_op("sign", kNumbers, elementwise<Ew::kSign>, zero_gradient, Rounding::kNone),
      {.name = "clip",
       .inputs = {{"t", kNumbers}},
       .attrs = bounds(),
       .infer = infer_clip,
       .eval = eval_clip<Ew::kClip>,
       .grad = clip_grad},
      {.name = "clip_grad",
       .inputs = {{"y", kFloating}, {"dy", kFloating}},
       .attrs = bounds(),
       .infer = all_same,
       .eval = eval_clip<Ew::kClipGrad>,
       .internal = true},
      {.name = "fmod",
       .inputs = {{"lhs", kNumbers}, {"rhs", kNumbers}},
       .infer = broadcast_binary,
       .eval = elementwise<Ew::kFmod>,
       .grad = fmod_grad},
      increment_mod,
      inplace_form(increment_mod, "increment_mod_"),
      {.name = "identity",
       .inputs = {{"t"}},
       .infer = same_as_input,
       .eval = eval_copy,
       .grad = identity_grad,
       .same_bytes = true},
  };
}

}  // namespace popsr
