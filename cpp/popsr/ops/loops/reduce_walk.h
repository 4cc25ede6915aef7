// The walker of reductions over any axes.
//
// Order, part of the contract: axes of extent 1 do not count and adjacent reduced axes are one. When the
// innermost axis is reduced, each of its rows folds through 16 lanes and a fixed tree (kernels::ReduceFn).
// What is left, rows' results or elements, folds over the other reduced axes in ascending C order: acc =
// first, acc = acc + next, ... Narrow floats and f32 accumulate in float, f64 in double, integers wrap in
// their own type, but their means are exact. A narrow sum is rounded once, with the remainder of the last
// addition.
#pragma once

#include "popsr/ir/eval.h"

namespace popsr {

enum class Fold {
  kSum,
  kMean,  ///< sum / count; of integers the exact quotient, towards zero
  kMax,
  kMin,
  kProd,
  kSumSquare,  ///< Every square is rounded, then added.
  kL1,
  kL2,         ///< sqrt(sum of squares), without rescaling
  kLogSum,     ///< log(sum)
  kLogSumExp,  ///< m + log(sum of exp(x - m)), m = the largest element, or 0 when that is not finite
};

/// Output 0 = the fold of input 0 over attribute "axis". Nothing folds to 0 (product: 1), max to the lowest.
BlockKernel reduction_kernel(const EvalSpec& spec, Fold fold);

/// For OpDef::eval: `.eval = reduction<Fold::kSum>`.
template <Fold fold>
BlockKernel reduction(const EvalSpec& spec) {
  return reduction_kernel(spec, fold);
}

}  // namespace popsr
