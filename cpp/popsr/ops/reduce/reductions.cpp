// Reductions over any axes: sum, mean, max, min, prod and those of magnitudes, squares and exponentials.
#include <limits>
#include <vector>

#include "popsr/ops/infer.h"
#include "popsr/ops/loops/reduce_walk.h"
#include "popsr/ops/reduce/axes.h"
#include "popsr/ops/registry.h"

namespace popsr {

namespace {

/// The gradient of the output at every element it came from.
TensorId spread(GradContext& g, TensorId t) {
  return g.emit("broadcast_to", {keep_reduced(g, t)}, {{"shape", g.in_type(0).shape}});
}

void sum_grad(GradContext& g) {
  if (differentiates(g, 0)) g.set(0, spread(g, g.cotangent(0)));
}

void mean_grad(GradContext& g) {
  if (!differentiates(g, 0)) return;
  const Shape& from = g.in_type(0).shape;
  const std::int64_t count = reduced_count(from, reduced_axes(g.op(), from.size()));
  g.set(0, spread(g, g.emit("scale", {g.cotangent(0)}, {{"factor", 1.0 / static_cast<double>(count)}})));
}

/// Every element that equals the extreme receives the whole gradient, ties included.
void extreme_grad(GradContext& g) {
  if (!differentiates(g, 0)) return;
  const TensorId mask = g.emit("equal_mask", {g.in(0), keep_reduced(g, g.out(0))});
  g.set(0, g.emit("mul", {mask, keep_reduced(g, g.cotangent(0))}));
}

/// dy * the product of the other elements; right where some are 0, too.
void prod_grad(GradContext& g) {
  if (!differentiates(g, 0)) return;
  const Shape& from = g.in_type(0).shape;
  const TensorId others = g.emit("prod_of_others", {g.in(0)}, {{"axis", reduced_axes(g.op(), from.size())}});
  g.set(0, g.emit("mul", {others, keep_reduced(g, g.cotangent(0))}));
}

void sumsquare_grad(GradContext& g) {
  if (!differentiates(g, 0)) return;
  const TensorId twice = g.emit("scale", {g.cotangent(0)}, {{"factor", 2.0}});
  g.set(0, g.emit("mul", {g.in(0), keep_reduced(g, twice)}));
}

/// dy * sign(t)
void l1_grad(GradContext& g) {
  if (differentiates(g, 0)) g.set(0, g.emit("abs_grad", {g.in(0), keep_reduced(g, g.cotangent(0))}));
}

/// The least positive number of a floating dtype.
double least_positive(DType dtype) {
  if (dtype == DType::kFloat64) return std::numeric_limits<double>::denorm_min();
  if (dtype == DType::kFloat32) return static_cast<double>(std::numeric_limits<float>::denorm_min());
  return dtype == DType::kFloat16 ? 0x1p-24 : 0x1p-133;
}

/// dy * t / y; where y is 0 so is t, and t / least is 0.
void l2_grad(GradContext& g) {
  if (!differentiates(g, 0)) return;
  const TensorType& type = g.out_type(0);
  const TensorId least =
      g.emit("broadcast_to", {g.scalar(least_positive(type.dtype), type.dtype)}, {{"shape", type.shape}});
  const TensorId norm = g.emit("maximum", {g.out(0), least});
  const TensorId direction = g.emit("div", {g.in(0), keep_reduced(g, norm)});
  g.set(0, g.emit("mul", {direction, keep_reduced(g, g.cotangent(0))}));
}

/// dy / sum(t)
void logsum_grad(GradContext& g) {
  if (!differentiates(g, 0)) return;
  const Shape& from = g.in_type(0).shape;
  const TensorId sum =
      g.emit("sum", {g.in(0)}, {{"axis", reduced_axes(g.op(), from.size())}, {"keepdims", true}});
  g.set(0, spread(g, g.emit("div", {keep_reduced(g, g.cotangent(0)), sum})));
}

/// dy * exp(t - y)
void logsumexp_grad(GradContext& g) {
  if (!differentiates(g, 0)) return;
  const TensorId part = g.emit("exp", {g.emit("sub", {g.in(0), keep_reduced(g, g.out(0))})});
  g.set(0, g.emit("mul", {part, keep_reduced(g, g.cotangent(0))}));
}

OpDef over_axes(std::string_view name, DTypeSet dtypes, EvalFn eval, GradFn grad) {
  return {.name = name,
          .inputs = {{"t", dtypes}},
          .attrs = {optional("axis", AttrType::kInts), optional("keepdims", AttrType::kBool, false)},
          .infer = infer_reduction,
          .kernel = {.eval = eval},
          .grad = {.rule = grad},
          .numerics = kRoundsOnce};
}

OpDef extreme(std::string_view name, EvalFn eval) {
  OpDef def = over_axes(name, kNumbers, eval, extreme_grad);
  def.infer = infer_selection;
  def.numerics.rounding = Rounding::kNone;
  return def;
}

}  // namespace

std::vector<OpDef> reduction_ops() {
  std::vector<OpDef> ops = {
      over_axes("sum", kNumbers, reduction<Fold::kSum>, sum_grad),
      over_axes("mean", kNumbers, reduction<Fold::kMean>, mean_grad),
      extreme("max", reduction<Fold::kMax>),
      extreme("min", reduction<Fold::kMin>),
      over_axes("prod", kNumbers, reduction<Fold::kProd>, prod_grad),
      over_axes("sumsquare", kNumbers, reduction<Fold::kSumSquare>, sumsquare_grad),
      over_axes("l1", kNumbers, reduction<Fold::kL1>, l1_grad),
      over_axes("l2", kFloating, reduction<Fold::kL2>, l2_grad),
      over_axes("logsum", kFloating, reduction<Fold::kLogSum>, logsum_grad),
      over_axes("logsumexp", kFloating, reduction<Fold::kLogSumExp>, logsumexp_grad),
  };
  for (const auto family : {softmax_ops, scan_ops, order_ops}) {
    for (OpDef& op : family()) ops.push_back(std::move(op));
  }
  return ops;
}

}  // namespace popsr
