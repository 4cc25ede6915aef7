#include "popsr/ops/nn/pool/windows.h"
#include "popsr/ops/nn/conv/pad_rule.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "popsr/base/error.h"

namespace popsr {
namespace {

using Ints = std::vector<std::int64_t>;

constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
constexpr std::size_t kLeading = 2;  ///< Samples and channels.

constexpr Attr<Ints> kKernelSize{"kernel_size"};
constexpr Attr<Ints> kStride{"stride"};
constexpr Attr<Ints> kPadding{"padding"};
constexpr Attr<Ints> kOutPads{"out_pads"};
constexpr Attr<Ints> kDilation{"dilation"};
constexpr Attr<Ints> kInDilations{"in_dilations"};
constexpr ChoiceAttr<PadRule> kAutoPad{"auto_pad", kPadRules};
constexpr Attr<bool> kCeilMode{"ceil_mode"};

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return a >= 0 ? (a + b - 1) / b : -(-a / b); }

/// An attribute of `count` numbers from `least` on, all `fallback` where it is absent.
Ints numbers(const Op& op, const Attr<Ints>& attr, std::size_t count, std::int64_t least,
             std::int64_t fallback) {
  const Ints given = op.find(attr).value_or(Ints(count, fallback));
  if (given.size() != count) {
    raise<AttributeValueError>("{}: {} has the wrong length, got {}, expected {} numbers", op.def->name,
                               attr.name, to_string(given), count);
  }
  for (const std::int64_t each : given) {
    if (each >= least && each <= kMost) continue;
    raise<AttributeValueError>("{}: {} is out of range, got {}, expected {} to {}", op.def->name, attr.name,
                               to_string(given), least, kMost);
  }
  return given;
}

struct Padding {
  PadRule rule;
  Ints values;  ///< Begins, then ends.
  bool ceil;
};

Padding padding_of(const Op& op, std::size_t dims) {
  Padding padding{
      .rule = op.get(kAutoPad), .values = numbers(op, kPadding, 2 * dims, 0, 0), .ceil = op.get(kCeilMode)};
  if (padding.rule != PadRule::kNotSet) std::ranges::fill(padding.values, 0);  // a rule takes its place
  return padding;
}

/// Sets `windows` and `pad`. `d`: spatial dimension.
void place_windows(const Op& op, const Padding& padding, std::size_t d, PoolAxis& axis) {
  if (axis.in_dilation > 1 && axis.in > kMost) {
    raise<ShapeError>("{}: extent is too big to be dilated, got {} on axis {}, expected at most {}",
                      op.def->name, axis.in, d + kLeading, kMost);
  }
  const std::int64_t window = (axis.kernel - 1) * axis.dilation + 1;
  if (is_same(padding.rule)) {
    axis.windows = ceil_div(axis.reach(), axis.stride);
    const std::int64_t total =
        std::max<std::int64_t>((axis.windows - 1) * axis.stride + window - axis.reach(), 0);
    axis.pad = padding.rule == PadRule::kSameUpper ? total / 2 : total - total / 2;
    return;
  }
  axis.pad = padding.values[d];
  const std::int64_t padded = axis.pad + axis.reach() + padding.values[padding.values.size() / 2 + d];
  if (window > padded) {
    raise<ShapeError>(
        "{}: window is larger than the padded operand, got {} of {} on axis {}, expected at most it",
        op.def->name, window, padded, d + kLeading);
  }
  axis.windows = (padded - window) / axis.stride + 1;
  if (!padding.ceil || padding.rule == PadRule::kValid) return;
  // One more that reaches beyond the padding, unless it begins behind the operand.
  const bool rest = (padded - window) % axis.stride != 0;
  if (rest && axis.windows * axis.stride < axis.pad + axis.reach()) ++axis.windows;
}

}  // namespace

TapRun PoolAxis::run(std::int64_t k) const {
  const std::int64_t offset = k * dilation - pad;  // Position of window 0's tap.
  if (reach() == 0) return {};
  const std::int64_t end = std::min(windows, reach() > offset ? (reach() - 1 - offset) / stride + 1 : 0);
  std::int64_t first = std::max<std::int64_t>(ceil_div(-offset, stride), 0);
  const std::int64_t common = std::gcd(stride, in_dilation);
  const std::int64_t step = in_dilation / common;
  // At most one of `step` consecutive windows contains an element.
  const std::int64_t last = std::min(end, first + step);
  while (first < last && (first * stride + offset) % in_dilation != 0) ++first;
  if (first >= last) return {};
  return {.first = first,
          .step = step,
          .from = (first * stride + offset) / in_dilation,
          .from_step = stride / common,
          .count = (end - first + step - 1) / step};
}

std::vector<std::int64_t> PoolWindows::counts(std::size_t axis) const {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(axes[axis].windows));
  for (std::int64_t k = 0; k < axes[axis].kernel; ++k) {
    const TapRun run = axes[axis].run(k);
    for (std::int64_t i = 0; i < run.count; ++i) ++counts[static_cast<std::size_t>(run.first + i * run.step)];
  }
  return counts;
}

PoolWindows pool_windows(const Op& op, const Shape& t) {
  if (t.size() <= kLeading || t.size() > kLeading + PoolWindows::kDims) {
    raise<ShapeError>(
        "{}: operand does not have 1 to 3 spatial dimensions, got shape {}, expected [samples, channels, "
        "spatial...]",
        op.def->name, to_string(t));
  }
  const std::size_t dims = t.size() - kLeading;
  const Ints kernel = numbers(op, kKernelSize, dims, 1, 1), stride = numbers(op, kStride, dims, 1, 1),
             dilation = numbers(op, kDilation, dims, 1, 1),
             in_dilation = numbers(op, kInDilations, dims, 1, 1),
             around = numbers(op, kOutPads, 2 * dims, 0, 0);
  const Padding padding = padding_of(op, dims);
  PoolWindows result{.planes = t[0] * t[1]};
  for (std::size_t d = 0; d < dims; ++d) {
    PoolAxis& axis = result.axes[PoolWindows::kDims - dims + d];
    axis = {.in = t[kLeading + d],
            .kernel = kernel[d],
            .stride = stride[d],
            .dilation = dilation[d],
            .in_dilation = in_dilation[d],
            .before = around[d],
            .after = around[dims + d]};
    place_windows(op, padding, d, axis);
  }
  return result;
}

Shape pooled_shape(const PoolWindows& windows, const Shape& t) {
  Shape shape = t;
  for (std::size_t d = kLeading; d < t.size(); ++d) {
    shape[d] = windows.axes[PoolWindows::kDims - t.size() + d].out();
  }
  return shape;
}

std::vector<AttrDef> window_attrs() {
  return {required(kKernelSize),
          optional(kStride),
          optional(kPadding),
          optional(kOutPads),
          optional(kDilation),
          optional(kInDilations),
          optional(kAutoPad, PadRule::kNotSet),
          optional(kCeilMode, false)};
}

}  // namespace popsr
