// Comparisons, classes of floats, logic and selection. Results are bool or an operand's own bits: all exact.
#include <algorithm>
#include <optional>
#include <utility>

#include "popsr/base/error.h"
#include "popsr/exec/block_kernel.h"
#include "popsr/ops/infer.h"
#include "popsr/ops/loops/elementwise_walk.h"
#include "popsr/ops/registry.h"

namespace popsr {

namespace {

using kernels::ElementwiseOp;

std::vector<OutputDef> bools(const InferContext& context, Shape shape) {
  std::vector<OutputDef> outputs(1);
  outputs[0].type = {DType::kBool, std::move(shape)};
  outputs[0].meta_shape = common_meta_shape(context);
  return outputs;
}

Shape broadcast_operands(const InferContext& context, std::size_t a, std::size_t b) {
  return broadcast_shapes(context.name(), context.type(a).shape, context.type(b).shape);
}

/// Bits of the magnitude that every value of the type fits into; bool: 1.
std::size_t integer_bits(DType dtype) {
  return dtype == DType::kBool ? 1 : 8 * size_of(dtype) - (info(dtype).kind == DTypeKind::kInt ? 1 : 0);
}

/// A type that holds all values of both exactly; nullopt when there is none.
std::optional<DType> common_type(DType a, DType b) {
  if (a == b) return a;
  if (!is_float(a) && !is_float(b)) {
    const bool is_signed = info(a).kind == DTypeKind::kInt || info(b).kind == DTypeKind::kInt;
    if (!is_signed) return DType::kUInt64;
    if (std::max(integer_bits(a), integer_bits(b)) <= 63) return DType::kInt64;
    return std::nullopt;
  }
  bool wide = a == DType::kFloat64 || b == DType::kFloat64;
  for (const DType dtype : {a, b}) {
    if (is_float(dtype)) continue;
    if (integer_bits(dtype) > 32) return std::nullopt;
    wide = wide || integer_bits(dtype) > 16;
  }
  return wide ? DType::kFloat64 : DType::kFloat32;
}

/// Operands may differ in dtype: their values are compared.
std::vector<OutputDef> infer_comparison(const InferContext& context) {
  if (!common_type(context.type(0).dtype, context.type(1).dtype)) {
    raise<DTypeError>("{}: no dtype holds the values of both operands, got {} and {}, expected a cast of one",
                      context.name(), describe(context, 0), describe(context, 1));
  }
  return bools(context, broadcast_operands(context, 0, 1));
}

template <ElementwiseOp ew>
BlockKernel eval_comparison(const EvalSpec& spec) {
  return elementwise_kernel(spec, ew, {.compute = common_type(spec.inputs[0]->dtype, spec.inputs[1]->dtype)});
}
template <ElementwiseOp ew>
constexpr KernelAspect comparison{.eval = eval_comparison<ew>, .elementwise = ew};

/// The kernel with the operands exchanged.
template <ElementwiseOp ew>
BlockKernel eval_reversed(const EvalSpec& spec) {
  return elementwise_kernel(
      spec, ew, {.operands = {1, 0}, .compute = common_type(spec.inputs[0]->dtype, spec.inputs[1]->dtype)});
}
template <ElementwiseOp ew>
constexpr KernelAspect reversed_comparison{.eval = eval_reversed<ew>, .elementwise = ew};

OpDef comparison_op(std::string_view name, std::string_view first, std::string_view second,
                    KernelAspect kernel) {
  return {.name = name,
          .inputs = {{first, kNumbersAndBool}, {second, kNumbersAndBool}},
          .infer = infer_comparison,
          .kernel = kernel,
          .grad = {.missing = NoGrad::kThrows}};
}

// Classes of floats

std::vector<OutputDef> infer_class(const InferContext& context) {
  return bools(context, context.type(0).shape);
}

template <ElementwiseOp ew>
BlockKernel eval_class(const EvalSpec& spec) {
  return elementwise_kernel(spec, ew, {.compute = spec.inputs[0]->dtype});
}
template <ElementwiseOp ew>
constexpr KernelAspect class_of{.eval = eval_class<ew>, .elementwise = ew};

OpDef class_op(std::string_view name, KernelAspect kernel) {
  return {.name = name, .inputs = {{"t", kNumbers}}, .infer = infer_class, .kernel = kernel};
}

// Logic: operands of any dtype, true where they are not zero (NaN is not); counts no FLOPs

std::vector<OutputDef> infer_logic(const InferContext& context) {
  return bools(context, broadcast_operands(context, 0, 1));
}

OpDef logic_op(std::string_view name, EvalFn eval) {
  return {.name = name,
          .inputs = {{"lhs", kNumbersAndBool}, {"rhs", kNumbersAndBool}},
          .infer = infer_logic,
          .kernel = {.eval = eval},
          .grad = {.missing = NoGrad::kThrows}};
}

// Select (where)

std::vector<OutputDef> infer_where(const InferContext& context) {
  require_equal_dtypes(context, 1, 2);
  const Shape values = broadcast_operands(context, 1, 2);
  Shape shape = broadcast_shapes(context.name(), context.type(0).shape, values);
  std::vector<OutputDef> outputs(1);
  outputs[0].type = {context.type(1).dtype, std::move(shape)};
  outputs[0].meta_shape = common_meta_shape(context);
  return outputs;
}

BlockKernel eval_where(const EvalSpec& spec) {
  return elementwise_kernel(spec, ElementwiseOp::kSelect, {.condition = 0});
}

GradValue where_grad(Grad& g, std::size_t i, bool first) {
  const GradValue zero = g.constant(0, g.out_type(0).dtype).now();
  return g.sum_to_input(i, g.call("where", {g.x(0), first ? g.dy() : zero, first ? zero : g.dy()}));
}

}  // namespace

std::vector<OpDef> comparisons_ops() {
  return {
      comparison_op("equal", "lhs", "rhs", comparison<ElementwiseOp::kEqualMask>),
      comparison_op("greater", "input", "other", comparison<ElementwiseOp::kGreater>),
      comparison_op("not_equal", "lhs", "rhs", comparison<ElementwiseOp::kNotEqual>),
      comparison_op("less", "lhs", "rhs", reversed_comparison<ElementwiseOp::kGreater>),
      comparison_op("less_equal", "lhs", "rhs", comparison<ElementwiseOp::kLessEqual>),
      comparison_op("greater_equal", "lhs", "rhs", reversed_comparison<ElementwiseOp::kLessEqual>),
      class_op("isnan", class_of<ElementwiseOp::kIsNan>),
      class_op("isinf", class_of<ElementwiseOp::kIsInf>),
      class_op("isfinite", class_of<ElementwiseOp::kIsFinite>),
      logic_op("logical_and", elementwise<ElementwiseOp::kMinimum>),
      logic_op("logical_or", elementwise<ElementwiseOp::kMaximum>),
      logic_op("logical_xor", elementwise<ElementwiseOp::kNotEqual>),
      {.name = "logical_not",
       .inputs = {{"t", kNumbersAndBool}},
       .infer = infer_class,
       .kernel = elementwise_op<ElementwiseOp::kLogicalNot>,
       .grad = {.missing = NoGrad::kThrows}},
      {.name = "where",
       .inputs = {{"condition", kNumbersAndBool}, {"lhs"}, {"rhs"}},
       .infer = infer_where,
       .kernel = {.eval = eval_where, .elementwise = ElementwiseOp::kSelect},
       .grad = per_input({nullptr, [](Grad& g) { return where_grad(g, 1, true); },
                          [](Grad& g) { return where_grad(g, 2, false); }}),
       .numerics = {.linear = Linear::kChoice}},
  };
}

}  // namespace popsr
