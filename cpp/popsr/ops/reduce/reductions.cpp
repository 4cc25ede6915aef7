// Reductions over any axes: sum, mean, max, min, prod, and sums of magnitudes, squares and exponentials.
#include <algorithm>
#include <cmath>
#include <vector>

#include "popsr/base/error.h"
#include "popsr/exec/block_kernel.h"
#include "popsr/ops/attributes.h"
#include "popsr/ops/infer.h"
#include "popsr/ops/loops/reduce_walk.h"
#include "popsr/ops/reduce/axes.h"
#include "popsr/ops/registry.h"

namespace popsr {

namespace {

/// Reduced axes of the forward op, for its gradient's ops.
Shape axes_of(const Grad& g) { return reduced_axes(g.op(), g.in_type(0).shape.size()); }

/// The gradient of the output at every element it came from.
GradValue broadcast_back(Grad& g, const GradValue& t) {
  return g.call("broadcast_to", {with_reduced_axes(g, t)}, {kShape(g.in_type(0).shape)});
}

GradValue mean_grad(Grad& g) {
  const std::int64_t count = reduced_count(g.in_type(0).shape, axes_of(g));
  return broadcast_back(g, g.scale(g.dy(), 1.0 / static_cast<double>(count)));
}

/// Every element that equals the extreme receives the whole gradient, ties included.
GradValue extreme_grad(Grad& g) {
  return g.call("equal_mask", {g.x(), with_reduced_axes(g, g.y())}) * with_reduced_axes(g, g.dy());
}

/// dy * the product of the other elements; right where some are 0, too.
GradValue prod_grad(Grad& g) {
  return g.call("prod_of_others", {g.x()}, {kAxes(axes_of(g))}) * with_reduced_axes(g, g.dy());
}

GradValue sumsquare_grad(Grad& g) {
  const GradValue twice = g.scale(g.dy(), 2.0).now();
  return g.x() * with_reduced_axes(g, twice);
}

/// dy * t / y; where y is 0 so is t, and t / least is 0.
GradValue l2_grad(Grad& g) {
  const TensorType& type = g.out_type(0);
  const double smallest = std::ldexp(1.0, least_exponent(format_of(type.dtype)));
  const GradValue number = g.constant(smallest, type.dtype);
  const GradValue least = g.call("broadcast_to", {number}, {kShape(type.shape)}).now();
  const GradValue norm = g.call("maximum", {g.y(), least}).now();
  return g.x() / with_reduced_axes(g, norm) * with_reduced_axes(g, g.dy());
}

/// dy / sum(t)
GradValue logsum_grad(Grad& g) {
  const GradValue sum = g.call("sum", {g.x()}, {kAxes(axes_of(g)), kKeepDims(true)}).now();
  return broadcast_back(g, with_reduced_axes(g, g.dy()) / sum);
}

/// dy * exp(t - y)
GradValue logsumexp_grad(Grad& g) {
  return g.call("exp", {g.x() - with_reduced_axes(g, g.y())}) * with_reduced_axes(g, g.dy());
}

OpDef over_axes(std::string_view name, DTypeSet dtypes, KernelAspect kernel, InputGradFn grad) {
  return {.name = name,
          .inputs = {{"t", dtypes}},
          .attrs = {optional(kAxes), optional(kKeepDims, false)},
          .infer = infer_reduction,
          .kernel = kernel,
          .grad = per_input({grad}),
          .numerics = kRoundsOnce};
}

OpDef linear(std::string_view name, KernelAspect kernel, InputGradFn grad) {
  OpDef def = over_axes(name, kNumbers, kernel, grad);
  def.numerics.linear = Linear::kAll;
  return def;
}

OpDef extreme(std::string_view name, KernelAspect kernel) {
  OpDef def = over_axes(name, kNumbers, kernel, extreme_grad);
  def.infer = infer_selection;
  def.numerics.rounding = Rounding::kNone;
  return def;
}

// Var: the divisor is the number of elements less the correction

constexpr Attr<double> kCorrection{"correction"};

std::vector<OutputDef> infer_var(const InferContext& context) {
  const double correction = context.get(kCorrection);
  if (!std::isfinite(correction) || correction < 0) {
    raise<AttributeValueError>(
        "{}: correction is out of range, got {}, expected a finite number of at least 0", context.name(),
        correction);
  }
  return infer_reduction(context);
}

BlockKernel eval_var(const EvalSpec& spec) {
  return reduction_kernel(spec, ReductionOp::kVar, {.correction = spec.op.get(kCorrection)});
}

/// dy * 2 (t - mean) / divisor
GradValue var_grad(Grad& g) {
  const auto count = static_cast<double>(reduced_count(g.in_type(0).shape, axes_of(g)));
  const double divisor = std::max(0.0, count - g.get(kCorrection));
  const GradValue mean = g.call("mean", {g.x()}, {kAxes(axes_of(g)), kKeepDims(true)});
  return (g.x() - mean) * with_reduced_axes(g, g.scale(g.dy(), 2.0 / divisor));
}

OpDef variance() {
  OpDef def = over_axes("var", kFloating,
                        {.eval = eval_var, .flops = flops_per_input<flops_of(ReductionOp::kVar)>}, var_grad);
  def.attrs.push_back(optional(kCorrection, 0.0));
  def.infer = infer_var;
  return def;
}

/// Sums over the first axis are chains in C order, but for rows of one axis, which go through lanes, and
/// narrow floats, which are rounded once.
Slices sum_slices(const EvalSpec& spec) {
  const TensorType& type = *spec.inputs[0];
  const bool is_chain =
      is_float(type.dtype) && !is_narrow_float(type.dtype) && num_elements(spec.outputs[0].shape) > 1;
  const std::vector<std::int64_t> axes = reduced_axes(spec.op, type.shape.size());
  return is_chain && axes == std::vector<std::int64_t>{0} ? Slices::kAdded : Slices::kNone;
}

constexpr KernelAspect kSum{.eval = reduction<ReductionOp::kSum>,
                            .slices = sum_slices,
                            .flops = flops_per_input<flops_of(ReductionOp::kSum)>};

}  // namespace

std::vector<OpDef> reductions_ops() {
  return {
      linear("sum", kSum, [](Grad& g) { return broadcast_back(g, g.dy()); }),
      linear("mean", reduction_op<ReductionOp::kMean>, mean_grad),
      variance(),
      extreme("max", reduction_op<ReductionOp::kMax>),
      extreme("min", reduction_op<ReductionOp::kMin>),
      over_axes("prod", kNumbers, reduction_op<ReductionOp::kProd>, prod_grad),
      over_axes("sumsquare", kNumbers, reduction_op<ReductionOp::kSumSquare>, sumsquare_grad),
      over_axes("l1", kNumbers, reduction_op<ReductionOp::kL1>,
                // dy * sign(t)
                [](Grad& g) {
                  return g.call("abs_grad", {g.x(), with_reduced_axes(g, g.dy())});
                }),
      over_axes("l2", kFloating, reduction_op<ReductionOp::kL2>, l2_grad),
      over_axes("logsum", kFloating, reduction_op<ReductionOp::kLogSum>, logsum_grad),
      over_axes("logsumexp", kFloating, reduction_op<ReductionOp::kLogSumExp>, logsumexp_grad),
  };
}

}  // namespace popsr
