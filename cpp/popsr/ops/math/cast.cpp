// Conversion between dtypes, rounded once: cast between any two but float8, of which carriers meet float32
// alone, and casts from and to float8, whose values are scaled by a power of two that is known at run time.
// The scaled value is exact in the compute type, except where it is so small that every format rounds it to
// 0 (under stochastic rounding: but for a chance below 2^-64).
#include <string>

#include "popsr/base/error.h"
#include "popsr/exec/block_kernel.h"
#include "popsr/ops/attributes.h"
#include "popsr/ops/infer.h"
#include "popsr/ops/loops/elementwise_walk.h"
#include "popsr/ops/math/carriers.h"
#include "popsr/ops/math/pow2scale.h"
#include "popsr/ops/registry.h"

namespace popsr {
namespace {

// Cast: float to integer truncates and saturates, NaN -> 0; integers wrap; to bool: != 0. float64 and
// integers that a float32 cannot hold reach narrow floats in one rounding.

std::vector<OutputDef> infer_cast(const InferContext& context) {
  const auto to = context.get(kDataType);
  if (kFloat8.contains(to)) {
    raise<DTypeError>("{}: float8 needs a scale, got {}, expected another dtype or pow2scale_cast_to_fp8",
                      context.name(), info(to).name);
  }
  const DType from = context.type(0).dtype;
  if ((kCarriers.contains(from) && to != DType::kFloat32) ||
      (kCarriers.contains(to) && from != DType::kFloat32)) {
    raise<DTypeError>(
        "{}: {} is cast to and from float32 alone, got {} to {}, expected a cast to float32 first",
        context.name(), info(kCarriers.contains(from) ? from : to).name, info(from).name, info(to).name);
  }
  return {{{to, context.type(0).shape}, context.tensor(0).meta_shape}};
}

BlockKernel eval_cast(const EvalSpec& spec) {
  const bool carried = kCarriers.contains(spec.inputs[0]->dtype) || kCarriers.contains(spec.outputs[0].dtype);
  return carried ? carrier_cast(spec) : convert_kernel(spec);
}

/// float8_e8m0fnu has no zero.
ZeroFacts cast_zeros(const Op& op, const std::vector<bool>& zeros) {
  return {.clears = zeros[0] && !kCarriers.contains(op.get(kDataType))};
}

GradValue cast_grad(Grad& g) {
  if (!is_float(g.out_type(0).dtype)) return {};
  return g.cast(g.dy(), g.in_type(0).dtype);
}

// From and to float8

constexpr std::size_t kScale = 1;  ///< Input of the scale.

/// "a, b or c"
std::string alternatives(DTypeSet set) {
  std::string text, last;
  for (const DTypeInfo& row : kDTypes) {
    if (!set.contains(row.dtype)) continue;
    if (!last.empty()) text += (text.empty() ? "" : ", ") + last;
    last = row.name;
  }
  return text.empty() ? last : text + " or " + last;
}

std::vector<OutputDef> converted(const InferContext& context, DTypeSet accepted) {
  const auto to = context.get(kDataType);
  if (!accepted.contains(to)) {
    raise<DTypeError>("{}: wrong data_type, got {}, expected {}", context.name(), info(to).name,
                      alternatives(accepted));
  }
  require_scalar_scale(context, kScale);
  return {{{to, context.type(0).shape}, context.tensor(0).meta_shape}};
}

std::vector<OutputDef> infer_to_fp8(const InferContext& context) { return converted(context, kFloat8); }
std::vector<OutputDef> infer_from_fp8(const InferContext& context) { return converted(context, kFloating); }

/// t * 2^scale in the compute type of `wide`, stored with one rounding.
BlockKernel scaled(const EvalSpec& spec, DType wide) {
  return with_checked_scale(spec, kScale,
                            elementwise_kernel(spec, kernels::ElementwiseOp::kScale,
                                               {.operands = {0},
                                                .params = {{.input = kScale}},
                                                .prepare = [](double* p) { *p = power_of_scale(*p); },
                                                .compute = wide}));
}

BlockKernel eval_to_fp8(const EvalSpec& spec) { return scaled(spec, spec.inputs[0]->dtype); }
BlockKernel eval_from_fp8(const EvalSpec& spec) { return scaled(spec, spec.outputs[0].dtype); }

}  // namespace

std::vector<OpDef> cast_ops() {
  return {
      {.name = "cast",
       .inputs = {{"t", kNumbersAndBool | kCarriers}},
       .attrs = {required(kDataType)},
       .infer = infer_cast,
       .kernel = {.eval = eval_cast},
       .grad = per_input({cast_grad}),
       .memory = {.zeros = cast_zeros},
       .numerics = {.rounding = Rounding::kOnce, .linear = Linear::kMove, .pointwise = true}},
      {.name = "pow2scale_cast_to_fp8",
       .inputs = {{"t", kFloating}, log2_scale_input()},
       .attrs = {required(kDataType)},
       .infer = infer_to_fp8,
       .kernel = {.eval = eval_to_fp8},
       .grad = {.missing = NoGrad::kThrows},
       .numerics = kRoundsOnce},
      {.name = "pow2scale_cast_from_fp8",
       .inputs = {{"t", kFloat8}, log2_scale_input()},
       .attrs = {required(kDataType)},
       .infer = infer_from_fp8,
       .kernel = {.eval = eval_from_fp8},
       .grad = {.missing = NoGrad::kThrows},
       .numerics = kRoundsOnce},
  };
}

}  // namespace popsr
