// Windows of pooling ops: the elements in each of them, and the number of windows.
//
// The meaning is ONNX's. In each spatial dimension the operand is dilated (in_dilations - 1 gaps between
// elements), then padded; window o begins at position o * stride of that and has a tap every `dilation`
// positions. Gaps and padding hold no elements: a window contains real elements alone.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "popsr/ir/op_def.h"

namespace popsr {

/// Elements of a line that one tap of the windows selects: for window first + i * step, element from + i *
/// from_step, for 0 <= i < count.
struct TapRun {
  std::int64_t first = 0, step = 1, from = 0, from_step = 1, count = 0;
};

/// One spatial dimension.
struct PoolAxis {
  std::int64_t in = 1, windows = 1;  ///< Extents of the operand and of the windows.
  std::int64_t kernel = 1, stride = 1, dilation = 1, in_dilation = 1;
  std::int64_t pad = 0;                ///< Padding before the first element.
  std::int64_t before = 0, after = 0;  ///< Zeros around the results.

  std::int64_t out() const { return before + windows + after; }
  /// Positions of the dilated operand.
  std::int64_t reach() const { return in == 0 ? 0 : (in - 1) * in_dilation + 1; }
  /// Element that tap k of a window selects; -1 if there is none.
  std::int64_t element(std::int64_t window, std::int64_t k) const {
    const std::int64_t at = window * stride + k * dilation - pad;
    if (at < 0 || at >= reach()) return -1;
    if (in_dilation == 1) return at;
    return at % in_dilation == 0 ? at / in_dilation : -1;
  }
  TapRun run(std::int64_t k) const;
};

struct PoolWindows {
  static constexpr std::size_t kDims = 3;
  /// Spatial axes; leading ones are trivial if there are fewer dimensions.
  std::array<PoolAxis, kDims> axes = {};
  std::int64_t planes = 1;  ///< Samples times channels.

  /// Number of elements in each window along an axis.
  std::vector<std::int64_t> counts(std::size_t axis) const;
};

/// Windows of an op on an operand of shape `t`; typed errors if the attributes do not fit.
PoolWindows pool_windows(const Op& op, const Shape& t);
/// Shape [N, C, windows...].
Shape pooled_shape(const PoolWindows& windows, const Shape& t);

/// Attributes that pool_windows reads.
std::vector<AttrDef> window_attrs();

}  // namespace popsr
