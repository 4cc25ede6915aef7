// Arithmetic and functions, element by element. Activations and the ops that only gradients use:
// activations.cpp; comparisons and selection: comparisons.cpp; more functions: functions.cpp.
#include "popsr/base/error.h"
#include "popsr/ops/infer.h"
#include "popsr/ops/loops/blocks.h"
#include "popsr/ops/loops/elementwise_walk.h"
#include "popsr/ops/registry.h"

#include <array>
#include <utility>

namespace popsr {

namespace {

using kernels::Ew;

// ---- add, sub, mul, div

void add_grad(GradContext& g) {
  if (differentiates(g, 0)) g.set(0, g.sum_to(g.cotangent(0), g.in_type(0).shape));
  if (differentiates(g, 1)) g.set(1, g.sum_to(g.cotangent(0), g.in_type(1).shape));
}

void sub_grad(GradContext& g) {
  if (differentiates(g, 0)) g.set(0, g.sum_to(g.cotangent(0), g.in_type(0).shape));
  if (differentiates(g, 1)) g.set(1, g.emit("negate", {g.sum_to(g.cotangent(0), g.in_type(1).shape)}));
}

/// Equal dtypes, or float16 with one element of float32 (a loss scale): float16.
std::vector<OutputDef> infer_mul(const InferContext& context) {
  const auto scales = [&](std::size_t half, std::size_t one) {
    return context.type(half).dtype == DType::kFloat16 && context.type(one).dtype == DType::kFloat32 &&
           num_elements(context.type(one).shape) == 1;
  };
  if (!scales(0, 1) && !scales(1, 0)) return broadcast_binary(context);
  Shape shape = broadcast_shapes(context.name(), context.type(0).shape, context.type(1).shape);
  std::vector<OutputDef> outputs(1);
  outputs[0].type = {DType::kFloat16, std::move(shape)};
  outputs[0].meta_shape = common_meta_shape(context);
  return outputs;
}

void mul_grad(GradContext& g) {
  for (std::size_t i = 0; i < 2; ++i) {
    if (!differentiates(g, i)) continue;
    const TensorId product = g.emit("mul", {g.cotangent(0), g.in(1 - i)});
    const TensorId gradient = g.sum_to(product, g.in_type(i).shape);
    const DType dtype = g.in_type(i).dtype;
    g.set(i, g.type(gradient).dtype == dtype ? gradient : g.emit("cast", {gradient}, {{"data_type", dtype}}));
  }
}

/// d(x / y) = dy / y and -dy * (x / y) / y.
void div_grad(GradContext& g) {
  if (differentiates(g, 0)) {
    g.set(0, g.sum_to(g.emit("div", {g.cotangent(0), g.in(1)}), g.in_type(0).shape));
  }
  if (differentiates(g, 1)) {
    const TensorId product = g.emit("mul", {g.cotangent(0), g.out(0)});
    const TensorId quotient = g.sum_to(g.emit("div", {product, g.in(1)}), g.in_type(1).shape);
    g.set(1, g.emit("negate", {quotient}));
  }
}

std::vector<OpDef> arithmetic_ops() {
  return {
      {.name = "add",
       .inputs = {{"lhs", kNumbers}, {"rhs", kNumbers}},
       .infer = broadcast_binary,
       .eval = elementwise<Ew::kAdd>,
       .grad = add_grad,
       .rounding = Rounding::kOnce},
      {.name = "add_",
       .inputs = {{"lhs", kNumbers}, {"rhs", kNumbers}},
       .infer = broadcast_binary_inplace,
       .eval = elementwise<Ew::kAdd>,
       .effects = {{0, 0}},
       .rounding = Rounding::kOnce},
      {.name = "sub",
       .inputs = {{"lhs", kNumbers}, {"rhs", kNumbers}},
       .infer = broadcast_binary,
       .eval = elementwise<Ew::kSub>,
       .grad = sub_grad,
       .rounding = Rounding::kOnce},
      {.name = "mul",
       .inputs = {{"lhs", kNumbers}, {"rhs", kNumbers}},
       .infer = infer_mul,
       .eval = elementwise<Ew::kMul>,
       .grad = mul_grad,
       .rounding = Rounding::kOnce},
      {.name = "div",
       .inputs = {{"lhs", kNumbers}, {"rhs", kNumbers}},
       .infer = broadcast_binary,
       .eval = elementwise<Ew::kDiv>,
       .grad = div_grad,
       .rounding = Rounding::kOnce},
  };
}

// ---- maximum

/// Pairwise from the left; exact, so that narrow intermediate results lose nothing.
BlockKernel eval_maximum(const EvalSpec& spec) {
  if (spec.inputs.size() == 1) return copy_kernel(spec);
  std::vector<BlockKernel> folds;
  for (std::size_t i = 1; i < spec.inputs.size(); ++i) {
    EvalSpec fold = spec;
    fold.inputs = {spec.inputs[0], spec.inputs[i]};
    if (i > 1) fold.inputs[0] = spec.outputs[0];
    folds.push_back(elementwise_kernel(fold, Ew::kMaximum));
  }
  return [folds = std::move(folds)](const BlockRun& run) {
    folds[0](run);
    for (std::size_t i = 1; i < folds.size(); ++i) {
      const std::array<const std::byte*, 2> in = {run.out[0], run.in[i + 1]};
      const std::array<std::ptrdiff_t, 2> in_stride = {run.out_stride[0], run.in_stride[i + 1]};
      folds[i]({in.data(), in_stride.data(), run.out, run.out_stride, run.blocks, run.noise, run.pool});
    }
  };
}

std::vector<OutputDef> infer_maximum(const InferContext& context) {
  if (context.op.inputs.empty()) raise<GraphError>("{}: no operands, expected at least one", context.name());
  Shape shape = context.type(0).shape;
  for (std::size_t i = 1; i < context.op.inputs.size(); ++i) {
    require_equal_dtypes(context, 0, i);
    shape = broadcast_shapes(context.name(), shape, context.type(i).shape);
  }
  return {{{context.type(0).dtype, std::move(shape)}, common_meta_shape(context)}};
}

/// Every input that equals the output receives the whole gradient, ties included.
void maximum_grad(GradContext& g) {
  for (std::size_t i = 0; i < g.op().inputs.size(); ++i) {
    if (!differentiates(g, i)) continue;
    const TensorId mask = g.emit("equal_mask", {g.in(i), g.out(0)});
    g.set(i, g.sum_to(g.emit("mul", {g.cotangent(0), mask}), g.in_type(i).shape));
  }
}

// ---- functions

void negate_grad(GradContext& g) {
  if (differentiates(g, 0)) g.set(0, g.emit("negate", {g.cotangent(0)}));
}

void abs_grad(GradContext& g) {
  if (differentiates(g, 0)) g.set(0, g.emit("abs_grad", {g.in(0), g.cotangent(0)}));
}

void exp_grad(GradContext& g) {
  if (differentiates(g, 0)) g.set(0, g.emit("mul", {g.cotangent(0), g.out(0)}));
}

void log_grad(GradContext& g) {
  if (differentiates(g, 0)) g.set(0, g.emit("div", {g.cotangent(0), g.in(0)}));
}

/// dy / (2 sqrt(x)); halving is exact.
void sqrt_grad(GradContext& g) {
  if (!differentiates(g, 0)) return;
  const TensorId half = g.emit("mul", {g.cotangent(0), g.scalar(0.5, g.out_type(0).dtype)});
  g.set(0, g.emit("div", {half, g.out(0)}));
}

/// Base: dy * e * t^(e-1), 0 where e == 0. Exponent: dy * t^e * log(t), 0 where t == 0.
void pow_grad(GradContext& g) {
  if (differentiates(g, 0)) {
    const TensorId slope = g.emit("pow_grad_base", {g.in(0), g.in(1)});
    g.set(0, g.sum_to(g.emit("mul", {g.cotangent(0), slope}), g.in_type(0).shape));
  }
  if (differentiates(g, 1)) {
    const TensorId slope = g.emit("pow_grad_exponent", {g.in(0), g.out(0)});
    g.set(1, g.sum_to(g.emit("mul", {g.cotangent(0), slope}), g.in_type(1).shape));
  }
}

std::vector<OpDef> function_ops() {
  const OpDef exp = unary_op("exp", kFloating, elementwise<Ew::kExp>, exp_grad, Rounding::kOnce);
  return {
      unary_op("negate", kNumbers, elementwise<Ew::kNegate>, negate_grad, Rounding::kNone),
      unary_op("abs", kNumbers, elementwise<Ew::kAbs>, abs_grad, Rounding::kNone),
      exp,
      inplace_form(exp, "exp_"),
      unary_op("log", kFloating, elementwise<Ew::kLog>, log_grad, Rounding::kOnce),
      unary_op("sqrt", kFloating, elementwise<Ew::kSqrt>, sqrt_grad, Rounding::kOnce),
      {.name = "pow",
       .inputs = {{"t", kFloating}, {"e", kFloating}},
       .infer = broadcast_binary,
       .eval = elementwise<Ew::kPow>,
       .grad = pow_grad,
       .rounding = Rounding::kOnce},
      {.name = "maximum",
       .inputs = {{.name = "ts", .dtypes = kNumbers, .variadic = true}},
       .infer = infer_maximum,
       .eval = eval_maximum,
       .grad = maximum_grad},
  };
}

// ---- scaled_add: a * X + b * Y; Y is converted to the arithmetic type of X

std::vector<OutputDef> infer_scaled_add(const InferContext& context) {
  require_equal_shapes(context, 0, 1);
  require_one_element(context, 2);
  require_one_element(context, 3);
  return {{context.type(0), common_meta_shape(context)}};
}

BlockKernel eval_scaled_add(const EvalSpec& spec) {
  const auto factor = [&](std::string_view name, std::size_t input) {
    const bool given = input < spec.inputs.size() && spec.inputs[input].has_value();
    return given ? ScalarParam{.input = input} : ScalarParam{.value = spec.op.attr<double>(name)};
  };
  return elementwise_kernel(spec, Ew::kScaledAdd,
                            {.operands = {0, 1}, .params = {factor("a", 2), factor("b", 3)}});
}

std::vector<OpDef> scaled_add_ops() {
  const OpDef scaled_add{
      .name = "scaled_add",
      .inputs = {{"X", kFloating},
                 {"Y", kFloating},
                 {.name = "a", .dtypes = kFloating, .optional = true},
                 {.name = "b", .dtypes = kFloating, .optional = true}},
      .attrs = {optional("a", AttrType::kFloat, 1.0), optional("b", AttrType::kFloat, 1.0)},
      .infer = infer_scaled_add,
      .eval = eval_scaled_add,
      .rounding = Rounding::kOnce};
  return {scaled_add, inplace_form(scaled_add, "scaled_add_")};
}

}  // namespace

std::vector<OpDef> elementwise_ops() {
  std::vector<OpDef> ops;
  for (std::vector<OpDef>& family : std::array{arithmetic_ops(), function_ops(), scaled_add_ops(),
                                               activation_ops(), comparison_ops(), elementary_ops()}) {
    ops.insert(ops.end(), std::make_move_iterator(family.begin()), std::make_move_iterator(family.end()));
  }
  return ops;
}

}  // namespace popsr
