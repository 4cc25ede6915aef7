// Kernels of ops that see one block at a time. An op makes its kernel once per instruction, when a plan is
// compiled, so executing the instruction looks nothing up. The contract is declared below both ops and
// runtime, so that neither includes the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "popsr/base/layout/strided_view.h"
#include "popsr/ir/ir.h"

namespace popsr {

class InvalidLabels;
class ThreadPool;
namespace kernels {
struct KernelTable;
struct NoiseKey;
}  // namespace kernels

/// Static facts of one instruction: operand types and rounding. Entries of remote buffers follow the op's
/// own inputs and outputs.
struct EvalSpec {
  const Ir& ir;
  const Op& op;
  const kernels::KernelTable& kernels;
  /// Type of each input; nullopt where an optional input is absent.
  std::vector<std::optional<TensorType>> inputs;
  std::vector<TensorType> outputs;
  /// True if narrow outputs are rounded stochastically with the keys in BlockRun::noise.
  bool stochastic = false;
  /// True if scales of float8 ops are clamped to their range; otherwise a scale out of range is an error.
  bool clamp_scales = false;
  /// Views through which inputs are read, by input, and through which output 0 is written
  /// (KernelAspect::supports_views). An empty list or nullopt: the operand is dense.
  std::vector<std::optional<StridedView>> reads = {};
  std::optional<StridedView> writes = {};

  /// View of memory that input j is read through; the dense view if it has none.
  StridedView read(std::size_t j) const {
    return j < reads.size() && reads[j] ? *reads[j] : dense_view(inputs[j]->shape);
  }
};

/// One run of blocks: operand j of block b is at in[j] + b * in_stride[j] bytes (stride 0: shared by all
/// blocks). The output of an in-place op may be exactly its input's memory.
struct BlockRun {
  const std::byte* const* in;
  const std::ptrdiff_t* in_stride;
  std::byte* const* out;
  const std::ptrdiff_t* out_stride;
  std::int64_t blocks;
  /// Noise keys as noise[output][block]; entries are null when not stochastic.
  const kernels::NoiseKey* const* noise;
  ThreadPool& pool;
  std::uint64_t first = 0;  ///< Noise index of element 0; not 0 when this run is a slice of a larger value.
  /// Collects labels out of range, for ops with NumericAspect::labels; null when nobody asks for them.
  InvalidLabels* invalid_labels = nullptr;
};
using BlockKernel = std::function<void(const BlockRun&)>;

}  // namespace popsr
