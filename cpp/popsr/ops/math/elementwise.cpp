// Arithmetic and functions, element by element.
#include "popsr/base/error.h"
#include "popsr/exec/block_kernel.h"
#include "popsr/exec/product_kernel.h"
#include "popsr/ops/infer.h"
#include "popsr/ops/loops/accumulated_product.h"
#include "popsr/ops/loops/blocks.h"
#include "popsr/ops/loops/elementwise_walk.h"
#include "popsr/ops/registry.h"

#include <array>
#include <cstddef>
#include <optional>
#include <utility>

namespace popsr {

namespace {

using kernels::ElementwiseOp;

// Add, sub, mul, div

GradValue add_grad(Grad& g, std::size_t i) { return g.sum_to_input(i, g.dy()); }

std::optional<ProductFusion> add_fusion(const EvalSpec& spec) {
  if (spec.inputs[0] != spec.outputs[0] || spec.inputs[1] != spec.outputs[0]) return std::nullopt;
  return accumulated_product(spec, {.symmetric = true});
}

constexpr KernelAspect kSum{
    .eval = elementwise<ElementwiseOp::kAdd>, .fusion = add_fusion, .elementwise = ElementwiseOp::kAdd};

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

/// A product of mixed dtypes is cast to the dtype of the input.
GradValue mul_grad(Grad& g, std::size_t i) {
  const GradValue gradient = g.sum_to_input(i, g.dy() * g.x(1 - i));
  const DType dtype = g.in_type(i).dtype;
  return gradient.type().dtype == dtype ? gradient : g.cast(gradient, dtype);
}

std::vector<OpDef> arithmetic_ops() {
  return {
      {.name = "add",
       .inputs = {{"lhs", kNumbers}, {"rhs", kNumbers}},
       .infer = broadcast_binary,
       .kernel = kSum,
       .grad = {.each = add_grad},
       .numerics = kLinear},
      {.name = "add_",
       .inputs = {{"lhs", kNumbers}, {"rhs", kNumbers}},
       .infer = broadcast_binary_inplace,
       .kernel = kSum,
       .memory = {.effects = {{0, 0}}},
       .numerics = kLinear},
      {.name = "sub",
       .inputs = {{"lhs", kNumbers}, {"rhs", kNumbers}},
       .infer = broadcast_binary,
       .kernel = elementwise_op<ElementwiseOp::kSub>,
       .grad = per_input({[](Grad& g) { return g.sum_to_input(0, g.dy()); },
                          [](Grad& g) { return -g.sum_to_input(1, g.dy()); }}),
       .numerics = kLinear},
      {.name = "mul",
       .inputs = {{"lhs", kNumbers}, {"rhs", kNumbers}},
       .infer = infer_mul,
       .kernel = elementwise_op<ElementwiseOp::kMul>,
       .grad = {.each = mul_grad},
       .numerics = {.rounding = Rounding::kOnce, .linear = Linear::kEach}},
      {.name = "div",
       .inputs = {{"lhs", kNumbers}, {"rhs", kNumbers}},
       .infer = broadcast_binary,
       .kernel = elementwise_op<ElementwiseOp::kDiv>,
       // d(x / y) = dy / y and -dy * (x / y) / y
       .grad = per_input({[](Grad& g) { return g.sum_to_input(0, g.dy() / g.x(1)); },
                          [](Grad& g) { return -g.sum_to_input(1, g.dy() * g.y() / g.x(1)); }}),
       .numerics = {.rounding = Rounding::kOnce, .linear = Linear::kFirst}},
  };
}

// Maximum, minimum

/// Pairwise from the left; exact, so that narrow intermediate results lose nothing.
template <ElementwiseOp ew>
BlockKernel eval_extreme(const EvalSpec& spec) {
  if (spec.inputs.size() == 1) return copy_kernel(spec);
  std::vector<BlockKernel> steps;
  for (std::size_t i = 1; i < spec.inputs.size(); ++i) {
    EvalSpec step = spec;
    step.inputs = {spec.inputs[0], spec.inputs[i]};
    if (i > 1) step.inputs[0] = spec.outputs[0];
    steps.push_back(elementwise_kernel(step, ew));
  }
  return [steps = std::move(steps)](const BlockRun& run) {
    steps[0](run);
    for (std::size_t i = 1; i < steps.size(); ++i) {
      const std::array<const std::byte*, 2> in = {run.out[0], run.in[i + 1]};
      const std::array<std::ptrdiff_t, 2> in_stride = {run.out_stride[0], run.in_stride[i + 1]};
      steps[i]({in.data(), in_stride.data(), run.out, run.out_stride, run.blocks, run.noise, run.pool});
    }
  };
}

std::vector<OutputDef> infer_extreme(const InferContext& context) {
  if (context.op.inputs.empty()) raise<GraphError>("{}: no operands, expected at least one", context.name());
  Shape shape = context.type(0).shape;
  for (std::size_t i = 1; i < context.op.inputs.size(); ++i) {
    require_equal_dtypes(context, 0, i);
    shape = broadcast_shapes(context.name(), shape, context.type(i).shape);
  }
  return {{{context.type(0).dtype, std::move(shape)}, common_meta_shape(context)}};
}

/// Every input that equals the output receives the whole gradient, ties included.
GradValue extreme_operand_grad(Grad& g, std::size_t i) {
  return g.sum_to_input(i, g.dy() * g.call("equal_mask", {g.x(i), g.y()}));
}

template <ElementwiseOp ew>
OpDef extreme_op(std::string_view name) {
  return {.name = name,
          .inputs = {{.name = "ts", .dtypes = kNumbers, .variadic = true}},
          .infer = infer_extreme,
          .kernel = {.eval = eval_extreme<ew>, .elementwise = ew},
          .grad = {.each = extreme_operand_grad}};
}

// Functions

/// dy * e * t^(e-1), 0 where e == 0.
GradValue pow_grad_base(Grad& g) {
  return g.sum_to_input(0, g.dy() * g.call("pow_grad_base", {g.x(0), g.x(1)}));
}

/// dy * t^e * log(t), 0 where t == 0.
GradValue pow_grad_exponent(Grad& g) {
  return g.sum_to_input(1, g.dy() * g.call("pow_grad_exponent", {g.x(0), g.y()}));
}

std::vector<OpDef> function_ops() {
  const OpDef exp = unary_op(
      "exp", kFloating, elementwise_op<ElementwiseOp::kExp>, [](Grad& g) { return g.dy() * g.y(); },
      Rounding::kOnce);
  OpDef negate = unary_op(
      "negate", kNumbers, elementwise_op<ElementwiseOp::kNegate>, [](Grad& g) { return -g.dy(); },
      Rounding::kNone);
  negate.numerics.linear = Linear::kAll;
  return {
      negate,
      unary_op(
          "abs", kNumbers, elementwise_op<ElementwiseOp::kAbs>,
          [](Grad& g) {
            return g.call("abs_grad", {g.x(), g.dy()});
          },
          Rounding::kNone),
      exp,
      inplace_form(exp, "exp_"),
      unary_op(
          "log", kFloating, elementwise_op<ElementwiseOp::kLog>, [](Grad& g) { return g.dy() / g.x(); },
          Rounding::kOnce),
      unary_op(
          "sqrt", kFloating, elementwise_op<ElementwiseOp::kSqrt>,
          // dy / (2 sqrt(x)); halving is exact
          [](Grad& g) { return g.dy() * g.constant(0.5, g.out_type(0).dtype) / g.y(); }, Rounding::kOnce),
      {.name = "pow",
       .inputs = {{"t", kFloating}, {"e", kFloating}},
       .infer = broadcast_binary,
       .kernel = elementwise_op<ElementwiseOp::kPow>,
       .grad = per_input({pow_grad_base, pow_grad_exponent}),
       .numerics = kRoundsOnce},
      extreme_op<ElementwiseOp::kMaximum>("maximum"),
      extreme_op<ElementwiseOp::kMinimum>("minimum"),
  };
}

// scaled_add: a * X + b * Y; Y is converted to the arithmetic type of X

constexpr Attr<double> kA{"a"};
constexpr Attr<double> kB{"b"};
constexpr std::size_t kTensorA = 2, kTensorB = 3;  ///< Inputs of the factors.

std::vector<OutputDef> infer_scaled_add(const InferContext& context) {
  require_equal_shapes(context, 0, 1);
  require_one_element(context, kTensorA);
  require_one_element(context, kTensorB);
  return {{context.type(0), common_meta_shape(context)}};
}

ScalarParam factor(const EvalSpec& spec, const Attr<double>& attr, std::size_t input) {
  const bool given = input < spec.inputs.size() && spec.inputs[input].has_value();
  return given ? ScalarParam{.input = input} : ScalarParam{.value = spec.op.get(attr)};
}

BlockKernel eval_scaled_add(const EvalSpec& spec) {
  return elementwise_kernel(
      spec, ElementwiseOp::kScaledAdd,
      {.operands = {0, 1}, .params = {factor(spec, kA, kTensorA), factor(spec, kB, kTensorB)}});
}

std::optional<ProductFusion> scaled_add_fusion(const EvalSpec& spec) {
  return accumulated_product(spec, {.alpha = factor(spec, kA, kTensorA), .beta = factor(spec, kB, kTensorB)});
}

std::vector<OpDef> scaled_add_ops() {
  const OpDef scaled_add{.name = "scaled_add",
                         .inputs = {{"X", kFloating},
                                    {"Y", kNumbers},
                                    {.name = "a", .dtypes = kNumbers, .optional = true},
                                    {.name = "b", .dtypes = kNumbers, .optional = true}},
                         .attrs = {optional(kA, 1.0), optional(kB, 1.0)},
                         .infer = infer_scaled_add,
                         .kernel = {.eval = eval_scaled_add,
                                    .fusion = scaled_add_fusion,
                                    .elementwise = ElementwiseOp::kScaledAdd},
                         .numerics = {.rounding = Rounding::kOnce, .linear = Linear::kAll}};
  return {scaled_add, inplace_form(scaled_add, "scaled_add_")};
}

}  // namespace

std::vector<OpDef> elementwise_ops() {
  std::vector<OpDef> ops;
  for (std::vector<OpDef>& family : std::array{arithmetic_ops(), function_ops(), scaled_add_ops()}) {
    ops.insert(ops.end(), std::make_move_iterator(family.begin()), std::make_move_iterator(family.end()));
  }
  return ops;
}

}  // namespace popsr
