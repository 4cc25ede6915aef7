// Windows of a tensor whose corners an index tensor gives, as XLA's gather and scatter have them.
//
// The last axis of the indices holds the corners, its other axes are the batch. `windows` is the other side:
// batch axes and window axes, the latter at `offset_dims`. A window spans the axes of the tensor that are
// neither collapsed nor batching.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "popsr/exec/block_kernel.h"
#include "popsr/ir/op_def.h"

namespace popsr {

enum class WindowReduction : std::uint8_t { kLast, kSum, kMul, kMin, kMax };
/// Of a window that does not lie in the tensor.
enum class WindowBounds : std::uint8_t {
  kClip,   ///< It is moved inside.
  kFill,   ///< It reads the fill value; it is not written.
  kCheck,  ///< OutOfRangeError before anything is written.
};

/// The attributes, checked.
struct WindowDims {
  std::vector<std::int64_t> offset_dims = {}, collapsed_dims = {}, index_map = {};
  std::vector<std::int64_t> operand_batching_dims = {}, indices_batching_dims = {};

  /// The axes of the tensor that a window spans, ascending.
  std::vector<std::size_t> window_axes(std::size_t rank) const;
};

/// A tensor and its windows.
struct IndexedWindows {
  WindowDims dims;
  Shape tensor, indices, windows;
  Shape sizes;  ///< Of a window, for each axis of the tensor.
  WindowBounds bounds = WindowBounds::kClip;
};

/// Output 0, the windows, = those of input 0 at the indices of input 1. `last_only`: zeros, but for the last
/// window that meets an element.
BlockKernel take_windows(const EvalSpec& spec, const IndexedWindows& of, double fill, bool last_only);
/// Output 0, the tensor, = input 0 reduced with the windows of input 2 at the indices of input 1, in their
/// order. Narrow floats are reduced as float32 and rounded once.
BlockKernel scatter_windows(const EvalSpec& spec, const IndexedWindows& of, WindowReduction reduction);

}  // namespace popsr
