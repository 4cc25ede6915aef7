// Kernels of ops that see one block at a time. An op makes its kernel once per instruction, when a plan is
// compiled; running it looks nothing up. Defined below ops and runtime, so that neither needs the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "popsr/base/strided_view.h"
#include "popsr/ir/ir.h"

namespace popsr {

class InvalidLabels;
class ThreadPool;
namespace kernels {
struct KernelTable;
struct NoiseKey;
}  // namespace kernels

/// Static facts of one instruction. Remote entries follow the op's own inputs and outputs.
struct EvalSpec {
  const Ir& ir;
  const Op& op;
  const kernels::KernelTable& kernels;
  std::vector<std::optional<TensorType>> inputs;  ///< Absent where an optional input is.
  std::vector<TensorType> outputs;
  bool stochastic = false;    ///< Narrow outputs are rounded stochastically with BlockRun::noise.
  bool clamp_scales = false;  ///< Scales of float8 ops are clamped to their range; else they must be in it.
  /// Inputs that are read, and output 0 that is written, through views of other tensors: KernelAspect::takes.
  /// Empty: none is.
  std::vector<std::optional<StridedView>> reads = {};
  std::optional<StridedView> writes = {};

  /// Input j as a view of the memory that it is read from.
  StridedView read(std::size_t j) const {
    return j < reads.size() && reads[j] ? *reads[j] : dense_view(inputs[j]->shape);
  }
};

/// One run of blocks: operand j of block b is at in[j] + b * in_stride[j] bytes (stride 0: shared by all
/// blocks). An output of an in-place op may be exactly its input's memory.
struct BlockRun {
  const std::byte* const* in;
  const std::ptrdiff_t* in_stride;
  std::byte* const* out;
  const std::ptrdiff_t* out_stride;
  std::int64_t blocks;
  const kernels::NoiseKey* const* noise;  ///< noise[output][block]; null entries when not stochastic.
  ThreadPool& pool;
  std::uint64_t first = 0;  ///< Noise index of element 0: not 0 when this is a slice of a bigger value.
  InvalidLabels* invalid_labels = nullptr;  ///< Of ops with OpDef::labels; null when nobody wants to know.
};
using BlockKernel = std::function<void(const BlockRun&)>;

}  // namespace popsr
