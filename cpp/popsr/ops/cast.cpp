// cast: conversion between any two dtypes, rounded once.
#include "popsr/ops/elementwise_walk.h"
#include "popsr/ops/infer.h"
#include "popsr/ops/registry.h"

namespace popsr {

namespace {

std::vector<OutputDef> infer_cast(const InferContext& context) {
  return {{{context.op.attr<DType>("data_type"), context.type(0).shape}, context.tensor(0).meta_shape}};
}

BlockKernel eval_cast(const EvalSpec& spec) { return convert_kernel(spec); }

void cast_grad(GradContext& g) {
  if (!differentiates(g, 0) || !is_float(g.out_type(0).dtype)) return;
  g.set(0, g.emit("cast", {g.cotangent(0)}, {{"data_type", g.in_type(0).dtype}}));
}

}  // namespace

/// Float to integer truncates and saturates, NaN -> 0; integers wrap; to bool: != 0. float64 and integers
/// that a float32 cannot hold reach narrow floats in one rounding.
std::vector<OpDef> cast_ops() {
  return {
      {.name = "cast",
       .inputs = {{"t"}},
       .attrs = {required("data_type", AttrType::kDType)},
       .infer = infer_cast,
       .eval = eval_cast,
       .grad = cast_grad,
       .rounding = Rounding::kOnce},
  };
}

}  // namespace popsr
