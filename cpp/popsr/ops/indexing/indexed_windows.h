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
/// Treatment of a window that is not entirely inside the tensor.
enum class WindowBounds : std::uint8_t {
  kClip,   ///< The window is moved inside.
  kFill,   ///< Reads return the fill value; writes are skipped.
  kCheck,  ///< OutOfRangeError is thrown before anything is written.
};

/// Checked attributes of a windowed op.
struct WindowDims {
  std::vector<std::int64_t> offset_dims = {}, collapsed_dims = {}, index_map = {};
  std::vector<std::int64_t> operand_batching_dims = {}, indices_batching_dims = {};

  /// Axes of the tensor that a window spans, ascending.
  std::vector<std::size_t> window_axes(std::size_t rank) const;
};

/// A tensor and its windows.
struct IndexedWindows {
  WindowDims dims;
  Shape tensor, indices, windows;
  Shape sizes;  ///< Size of a window along each axis of the tensor.
  WindowBounds bounds = WindowBounds::kClip;
};

/// Kernel: output 0, the windows, = windows of input 0 at the indices of input 1. `last_only`: an element
/// is read only by the last window that contains it; the others read zeros.
BlockKernel take_windows(const EvalSpec& spec, const IndexedWindows& of, double fill, bool last_only);
/// Kernel: output 0, the tensor, = input 0 reduced with the windows of input 2 at the indices of input 1,
/// in their order. Narrow floats are reduced as float32 and rounded once.
BlockKernel scatter_windows(const EvalSpec& spec, const IndexedWindows& of, WindowReduction reduction);

}  // namespace popsr
