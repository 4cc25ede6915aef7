// cast: conversion between any two dtypes but float8, which need a scale (fp8.cpp); rounded once.
#include <utility>

#include "popsr/base/error.h"
#include "popsr/exec/block_kernel.h"
#include "popsr/ops/attributes.h"
#include "popsr/ops/infer.h"
#include "popsr/ops/loops/elementwise_walk.h"
#include "popsr/ops/registry.h"

namespace popsr {

namespace {

std::vector<OutputDef> infer_cast(const InferContext& context) {
  const auto to = context.get(kDataType);
  if (kFloat8.contains(to)) {
    raise<DTypeError>("{}: float8 needs a scale, got {}, expected another dtype or pow2scale_cast_to_fp8",
                      context.name(), info(to).name);
  }
  return {{{to, context.type(0).shape}, context.tensor(0).meta_shape}};
}

BlockKernel eval_cast(const EvalSpec& spec) { return convert_kernel(spec); }

ZeroFacts cast_zeros(const Op&, const std::vector<bool>& zeros) { return {.clears = zeros[0]}; }

GradValue cast_grad(Grad& g) {
  if (!is_float(g.out_type(0).dtype)) return {};
  return g.cast(g.dy(), g.in_type(0).dtype);
}

}  // namespace

/// Float to integer truncates and saturates, NaN -> 0; integers wrap; to bool: != 0. float64 and integers
/// that a float32 cannot hold reach narrow floats in one rounding.
std::vector<OpDef> cast_ops() {
  std::vector<OpDef> ops = {
      {.name = "cast",
       .inputs = {{"t", kNumbersAndBool}},
       .attrs = {required(kDataType)},
       .infer = infer_cast,
       .kernel = {.eval = eval_cast},
       .grad = per_input({cast_grad}),
       .memory = {.zeros = cast_zeros},
       .numerics = kRoundsOnce},
  };
  for (OpDef& op : fp8_ops()) ops.push_back(std::move(op));
  return ops;
}

}  // namespace popsr
