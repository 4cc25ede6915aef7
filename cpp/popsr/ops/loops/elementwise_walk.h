// Walker of elementwise ops: the one place where narrow floats are widened, computed and narrowed.
//
// An op is a body on tiles of its compute type (the output's unless said otherwise). The walker reads
// operands with NumPy broadcasting over the output's C order, converts them to the compute type, calls the
// body and stores the result: rounded once, to nearest even or stochastically with the noise of (block,
// C-order index inside the block). Operands that need no conversion are passed by pointer; blocks whose
// strides allow it are one flat loop. No result depends on the number of threads, on how blocks are run, or
// on the size of a tile.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "popsr/exec/block_kernel.h"
#include "popsr/ir/op_def.h"
#include "popsr/kernels/contract/kernel_table.h"
#include "popsr/ops/loops/tiles.h"

namespace popsr {

inline constexpr std::size_t kMaxOperands = 8;
inline constexpr std::size_t kMaxParams = 8;

/// Scalar parameter: a constant, or a one-element tensor input that is read once per block.
struct ScalarParam {
  double value = 0;
  std::optional<std::size_t> input = {};
};

/// Arguments of one call of a body.
struct TileArgs {
  const kernels::KernelTable& kernels;
  kernels::Compute compute;
  void* hi;                         ///< Result, of the compute type; may alias an operand exactly.
  void* lo;                         ///< Residuals, as floats; null if they are not wanted.
  std::span<const void* const> in;  ///< Operands, of the compute type; read-only.
  std::int64_t n;                   ///< Number of elements, at most kTile.
  const double* p;                  ///< Scalar parameters.
};
/// Function that computes one tile from several kernels; temporaries of kTile elements go on the stack (not
/// thread_scratch). If lo is not null it must be written.
using TileFn = void (*)(const TileArgs& args);

struct ElementwiseOptions {
  /// Inputs that are arrays; empty: all present inputs that are no parameter.
  std::vector<std::size_t> operands = {};
  std::vector<ScalarParam> params = {};  ///< Scalar parameters p[0], p[1], ...; at most kMaxParams.
  /// Function that changes p in place before it is used, e.g. step -> 1 / (step + 1).
  std::function<void(double* p)> prepare = {};
  std::size_t output = 0;
  bool residual = false;              ///< True if a TileFn writes lo. (Known for the kernels of the table.)
  std::optional<DType> compute = {};  ///< Dtype whose compute type is used instead of the output's.
  /// Input that is loaded as 0 or 1 (nonzero); the other operands and the output are words of their size,
  /// which keeps all bits.
  std::optional<std::size_t> condition = {};
  /// True if all operands and the output are words of their size: the kernel knows their dtype.
  bool words = false;
  std::int64_t work = 1;  ///< Work of one element, in additions; known for the kernels of the table.
};

/// Kernel: output = kernel of the table applied to the operands.
BlockKernel elementwise_kernel(const EvalSpec& spec, kernels::ElementwiseOp op,
                               ElementwiseOptions options = {});
/// Kernel: output = body applied to the operands.
BlockKernel elementwise_kernel(const EvalSpec& spec, TileFn body, ElementwiseOptions options = {});
/// Kernel: output = one input of the same shape converted to the output's dtype; bits are kept if the
/// dtypes are the same.
BlockKernel convert_kernel(const EvalSpec& spec, std::size_t input = 0, std::size_t output = 0);

template <kernels::ElementwiseOp op>
BlockKernel elementwise(const EvalSpec& spec) {
  return elementwise_kernel(spec, op);
}
/// Aspect of an op without parameters that is one kernel: `.kernel =
/// elementwise_op<kernels::ElementwiseOp::kAdd>`.
template <kernels::ElementwiseOp op>
inline constexpr KernelAspect elementwise_op{.eval = elementwise<op>, .elementwise = op};

}  // namespace popsr
