// Walker of reductions over any axes.
//
// Order, part of the contract: axes of extent 1 do not count and adjacent reduced axes are one. If the
// innermost axis is reduced, each of its rows reduces through 16 lanes and a fixed tree (kernels::ReduceFn).
// The rest, rows' results or elements, is reduced over the other reduced axes in ascending C order:
// acc = first, acc = acc + next, ... Narrow floats and f32 accumulate in float, f64 in double, integers wrap
// in their own type, but their means are exact. A narrow sum is rounded once, with the residual of the last
// addition.
#pragma once

#include <cstddef>
#include <cstdint>

#include "popsr/exec/block_kernel.h"
#include "popsr/ops/flops.h"

namespace popsr {

enum class ReductionOp : std::uint8_t {
  kNone,  ///< No reduction of rows; for columns of rows.
#define POPSR_ROW(name, ...) k##name,
#include "popsr/ops/reduce/reductions.def"
};

/// Floating point operations that a reduction counts per element of its operand.
constexpr int flops_of(ReductionOp op) {
  constexpr int kFlops[] = {
      0,
#define POPSR_ROW(name, shift, map, kernel, finish, flops) flops,
#include "popsr/ops/reduce/reductions.def"
  };
  return kFlops[static_cast<std::size_t>(op)];
}

struct ReductionOptions {
  /// Number subtracted from the number of elements in the divisor of a mean, which is at least 0.
  double correction = 0;
};

/// Kernel: output 0 = the reduction of input 0 over attribute "axis". Without elements it is the identity
/// of the row's kernel: 0, 1 for products, the lowest and the greatest number for max and min.
BlockKernel reduction_kernel(const EvalSpec& spec, ReductionOp op, ReductionOptions options = {});

template <ReductionOp op>
BlockKernel reduction(const EvalSpec& spec) {
  return reduction_kernel(spec, op);
}
/// Aspect of an op without options that is one reduction: `.kernel = reduction_op<ReductionOp::kSum>`.
template <ReductionOp op>
inline constexpr KernelAspect reduction_op{.eval = reduction<op>, .flops = flops_per_input<flops_of(op)>};

}  // namespace popsr
