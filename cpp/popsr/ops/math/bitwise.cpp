// Operations on the bits of integers, and logic of bool values.
#include "popsr/ops/infer.h"
#include "popsr/ops/loops/elementwise_walk.h"
#include "popsr/ops/registry.h"

namespace popsr {
namespace {

using kernels::ElementwiseOp;

constexpr DTypeSet kBits = kIntegers | DTypeSet{DType::kBool};

OpDef bitwise_binary(std::string_view name, DTypeSet dtypes, KernelAspect kernel) {
  return {.name = name,
          .inputs = {{"lhs", dtypes}, {"rhs", dtypes}},
          .infer = broadcast_binary,
          .kernel = kernel};
}

OpDef bit_shift(std::string_view name, KernelAspect kernel) {
  return {.name = name,
          .inputs = {{"t", kIntegers}, {"amount", kIntegers}},
          .infer = broadcast_binary,
          .kernel = kernel};
}

BlockKernel eval_bitwise_not(const EvalSpec& spec) {
  const bool of_bool = spec.outputs[0].dtype == DType::kBool;
  return elementwise_kernel(spec, of_bool ? ElementwiseOp::kLogicalNot : ElementwiseOp::kBitNot);
}

OpDef bitwise_unary(std::string_view name, DTypeSet dtypes, KernelAspect kernel) {
  return {.name = name, .inputs = {{"t", dtypes}}, .infer = same_as_input, .kernel = kernel};
}

}  // namespace

std::vector<OpDef> bitwise_ops() {
  return {
      bitwise_binary("bitwise_and", kBits, elementwise_op<ElementwiseOp::kBitAnd>),
      bitwise_binary("bitwise_or", kBits, elementwise_op<ElementwiseOp::kBitOr>),
      bitwise_binary("bitwise_xor", kBits, elementwise_op<ElementwiseOp::kBitXor>),
      bitwise_unary("bitwise_not", kBits, {.eval = eval_bitwise_not, .elementwise = ElementwiseOp::kBitNot}),
      bit_shift("shift_left", elementwise_op<ElementwiseOp::kShiftLeft>),
      bit_shift("shift_right_logical", elementwise_op<ElementwiseOp::kShiftRightLogical>),
      bit_shift("shift_right_arithmetic", elementwise_op<ElementwiseOp::kShiftRightArithmetic>),
      bitwise_unary("population_count", kIntegers, elementwise_op<ElementwiseOp::kPopulationCount>),
      bitwise_unary("count_leading_zeros", kIntegers, elementwise_op<ElementwiseOp::kCountLeadingZeros>),
  };
}

}  // namespace popsr
