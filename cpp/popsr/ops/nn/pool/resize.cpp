// resize: the whole Resize of ONNX, one axis after another, the outermost first. A result along an axis is a
// sum over its elements in ascending order; the gradient adds in the order of the results. Nearest elements
// are copied, of any dtype.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "popsr/base/error.h"
#include "popsr/exec/block_kernel.h"
#include "popsr/ops/attributes.h"
#include "popsr/ops/infer.h"
#include "popsr/ops/loops/blocks.h"
#include "popsr/ops/loops/tiles.h"
#include "popsr/ops/nn/pool/axis_passes.h"
#include "popsr/ops/nn/pool/resampling.h"
#include "popsr/ops/registry.h"

namespace popsr {
namespace {

using Ints = std::vector<std::int64_t>;
using ResizeNumbers = std::vector<double>;

// Attributes

constexpr Choice<Coordinates> kResizeCoordinates[] = {
    {"half_pixel", Coordinates::kHalfPixel},
    {"half_pixel_symmetric", Coordinates::kHalfPixelSymmetric},
    {"pytorch_half_pixel", Coordinates::kPytorchHalfPixel},
    {"align_corners", Coordinates::kAlignCorners},
    {"asymmetric", Coordinates::kAsymmetric},
    {"tf_crop_and_resize", Coordinates::kTfCropAndResize}};

constexpr Attr<Shape> kResizedSizes{"sizes"};
constexpr Attr<ResizeNumbers> kResizeScales{"scales"};
constexpr Attr<Ints> kResizedAxes{"axes"};
constexpr ChoiceAttr<Coordinates> kResizeCoordinateMode{"coordinate_transformation_mode", kResizeCoordinates};
constexpr Attr<double> kCubicCoeff{"cubic_coeff_a"};
constexpr Attr<bool> kAntialias{"antialias"};
constexpr Attr<bool> kExcludeOutside{"exclude_outside"};
constexpr Attr<ResizeNumbers> kRoi{"roi"};
constexpr Attr<double> kExtrapolationValue{"extrapolation_value"};

Resampling resampling_of(const Op& op) {
  return {.mode = op.get(kResampleMode),
          .nearest = op.get(kNearestMode),
          .coordinates = op.get(kResizeCoordinateMode),
          .cubic = op.get(kCubicCoeff),
          .antialias = op.get(kAntialias),
          .exclude_outside = op.get(kExcludeOutside)};
}

/// An axis that is resized. The rank is known to fit.
struct Resized {
  std::size_t axis = 0;
  AxisExtents extents = {};
};

double resized_span(const Op& op, std::int64_t in, double scale, std::int64_t axis) {
  constexpr double kMost = 1LL << 40;
  const double span = static_cast<double>(in) * scale;
  if (scale > 0 && scale < kMost && span < kMost) return span;
  raise<AttributeValueError>("{}: scales is out of range, got {} on axis {}, expected a positive number",
                             op.def->name, scale, axis);
}

Ints resized_axes(const Op& op, const Shape& t) {
  Ints axes = op.get(kResizedAxes);
  if (!axes.empty()) {
    for (std::int64_t& axis : axes) axis = normalize_axis(op.def->name, axis, t.size());
    Ints sorted = axes;
    std::ranges::sort(sorted);
    if (std::ranges::adjacent_find(sorted) == sorted.end()) return axes;
    raise<AttributeValueError>("{}: axes repeat, got {}, expected different ones", op.def->name,
                               to_string(op.get(kResizedAxes)));
  }
  for (std::size_t d = 0; d < t.size(); ++d) axes.push_back(static_cast<std::int64_t>(d));
  return axes;
}

void check_resize_length(const Op& op, std::string_view name, std::size_t got, std::size_t expected) {
  if (got == expected) return;
  raise<AttributeValueError>("{}: {} has the wrong length, got {} numbers, expected {}", op.def->name, name,
                             got, expected);
}

AxisExtents resized_extents(const Op& op, const Shape& t, const Ints& axes, std::size_t i) {
  const auto sizes = op.find(kResizedSizes);
  const auto scales = op.find(kResizeScales);
  const std::int64_t axis = axes[i], in = t[static_cast<std::size_t>(axis)];
  AxisExtents of{.in = in};
  if (sizes) of.out = (*sizes)[i];
  of.scale = scales ? (*scales)[i] : in > 0 ? static_cast<double>(of.out) / static_cast<double>(in) : 1;
  of.span = scales ? resized_span(op, in, of.scale, axis) : static_cast<double>(of.out);
  if (!sizes) of.out = static_cast<std::int64_t>(std::floor(of.span));
  if (of.out < 0 || (in > 0) != (of.out > 0)) {
    raise<ShapeError>("{}: extents do not fit, got {} for {} on axis {}, expected elements from elements",
                      op.def->name, of.out, in, axis);
  }
  if (op.get(kResizeCoordinateMode) == Coordinates::kTfCropAndResize) {
    of.begin = op.get(kRoi)[i];
    of.end = op.get(kRoi)[axes.size() + i];
  }
  return of;
}

/// The axes that change, ascending.
std::vector<Resized> resized_of(const Op& op, const Shape& t) {
  const Ints axes = resized_axes(op, t);
  const auto sizes = op.find(kResizedSizes);
  const auto scales = op.find(kResizeScales);
  if (!sizes && !scales) {
    raise<AttributeValueError>("{}: the size of the result is missing, got neither, expected sizes or scales",
                               op.def->name);
  }
  if (sizes) check_resize_length(op, kResizedSizes.name, sizes->size(), axes.size());
  if (scales) check_resize_length(op, kResizeScales.name, scales->size(), axes.size());
  const bool crops = op.get(kResizeCoordinateMode) == Coordinates::kTfCropAndResize;
  if (crops) check_resize_length(op, kRoi.name, op.get(kRoi).size(), 2 * axes.size());
  std::vector<Resized> made;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const AxisExtents extents = resized_extents(op, t, axes, i);
    const bool same = extents.scale == 1 && extents.out == extents.in;
    if (same && extents.begin == 0 && extents.end == 1) continue;
    made.push_back({.axis = static_cast<std::size_t>(axes[i]), .extents = extents});
  }
  std::ranges::sort(made, {}, &Resized::axis);
  return made;
}

std::vector<ResampledAxis> resampled_axes(const Op& op, const Shape& t) {
  const Resampling rule = resampling_of(op);
  const bool crops = rule.coordinates == Coordinates::kTfCropAndResize;
  std::vector<ResampledAxis> axes;
  for (const Resized& each : resized_of(op, t)) {
    axes.push_back({.axis = each.axis,
                    .blends = blends_of(rule, each.extents, crops),
                    .fill = op.get(kExtrapolationValue)});
  }
  return axes;
}

std::vector<OutputDef> infer_resize(const InferContext& context) {
  const TensorType& t = context.type(0);
  if (!is_float(t.dtype) && context.get(kResampleMode) != ResampleMode::kNearest) {
    raise<DTypeError>("{}: the mode needs floating numbers, got {}, expected a float dtype or mode 'nearest'",
                      context.name(), describe(context, 0));
  }
  Shape shape = t.shape;
  for (const Resized& each : resized_of(context.op, t.shape)) shape[each.axis] = each.extents.out;
  return {{{t.dtype, std::move(shape)}, {}}};
}

// Nearest elements

/// Copies for nearest modes: each result is a copy of an element, or the value for positions outside.
class NearestCopy {
 public:
  NearestCopy(const EvalSpec& spec, const std::vector<ResampledAxis>& axes)
      : size_(static_cast<std::int64_t>(size_of(spec.outputs[0].dtype))),
        elements_(num_elements(spec.outputs[0].shape)),
        fill_(static_cast<std::size_t>(size_)) {
    const Shape& t = spec.inputs[0]->shape;
    const double fill = axes.empty() ? 0 : axes[0].fill;
    load_fill(spec, fill);
    const std::size_t last = axes.empty() ? t.size() : axes.back().axis;
    const Shape strides = row_major_strides(t);
    for (std::size_t d = last + 1; d < t.size(); ++d) run_ *= t[d];
    for (std::size_t d = 0, next = 0; d <= last && d < t.size(); ++d) {
      Ints offsets;
      if (next < axes.size() && axes[next].axis == d) {
        for (const Blend& blend : axes[next++].blends) {
          offsets.push_back(blend.taps().empty() ? -1 : blend.taps()[0].index * strides[d]);
        }
      } else {
        for (std::int64_t i = 0; i < t[d]; ++i) offsets.push_back(i * strides[d]);
      }
      offsets_.push_back(std::move(offsets));
    }
    if (offsets_.empty()) offsets_.push_back({0});
  }

  void operator()(const BlockRun& run) const {
    if (elements_ == 0) return;
    const auto count = static_cast<std::int64_t>(offsets_.back().size());
    for_each_range(run, {.units = elements_ / run_ / count, .work = elements_},
                   [&](const Block& block, std::int64_t begin, std::int64_t end) {
                     for (std::int64_t row = begin; row < end; ++row) {
                       copy_row(block.in(0), block.out() + row * count * run_ * size_, row);
                     }
                   });
  }

 private:
  void load_fill(const EvalSpec& spec, double fill) {
    const kernels::Compute compute = compute_of(spec.outputs[0].dtype);
    alignas(8) std::byte wide[8] = {};
    load_tile(spec.kernels, DType::kFloat64, compute, wide, reinterpret_cast<const std::byte*>(&fill), 1);
    store_tile(spec.kernels, compute, spec.outputs[0].dtype, fill_.data(), wide, nullptr, 1, nullptr, 0);
  }

  void copy_row(const std::byte* from, std::byte* to, std::int64_t row) const {
    std::int64_t offset = 0;
    bool outside = false;
    for (std::size_t d = offsets_.size() - 1; d-- > 0;) {
      const auto extent = static_cast<std::int64_t>(offsets_[d].size());
      const std::int64_t at = offsets_[d][static_cast<std::size_t>(row % extent)];
      row /= extent;
      outside = outside || at < 0;
      offset += at;
    }
    switch (run_ * size_) {
      case 1:
        return copy_runs<1>(from + offset, to, outside);
      case 2:
        return copy_runs<2>(from + offset * 2, to, outside);
      case 4:
        return copy_runs<4>(from + offset * size_, to, outside);
      case 8:
        return copy_runs<8>(from + offset * size_, to, outside);
      default:
        return copy_runs<0>(from + offset * size_, to, outside);
    }
  }

  template <std::size_t kBytes>
  void copy_runs(const std::byte* from, std::byte* to, bool outside) const {
    const std::size_t bytes = kBytes > 0 ? kBytes : static_cast<std::size_t>(run_ * size_);
    for (const std::int64_t at : offsets_.back()) {
      if (outside || at < 0) {
        for (std::int64_t i = 0; i < run_; ++i) std::memcpy(to + i * size_, fill_.data(), fill_.size());
      } else {
        std::memcpy(to, from + at * size_, bytes);
      }
      to += bytes;
    }
  }

  std::int64_t size_, elements_, run_ = 1;
  std::vector<std::byte> fill_;
  std::vector<Ints> offsets_ = {};  ///< Offsets of each axis up to the last one that changes; -1: outside.
};

// Kernels

BlockKernel eval_resize(const EvalSpec& spec) {
  const std::vector<ResampledAxis> axes = resampled_axes(spec.op, spec.inputs[0]->shape);
  if (spec.op.get(kResampleMode) == ResampleMode::kNearest) return NearestCopy(spec, axes);
  return resample_kernel<false>(spec, axes);
}

BlockKernel eval_resize_grad(const EvalSpec& spec) {
  return resample_kernel<true>(spec, resampled_axes(spec.op, spec.outputs[0].shape));
}

// Definitions

std::vector<AttrDef> resize_attrs() {
  return {optional(kResizedSizes),
          optional(kResizeScales),
          optional(kResizedAxes, Ints{}),
          optional(kResampleMode, ResampleMode::kNearest),
          optional(kNearestMode, NearestMode::kRoundPreferFloor),
          optional(kResizeCoordinateMode, Coordinates::kHalfPixel),
          optional(kCubicCoeff, kCubicCoefficient),
          optional(kAntialias, false),
          optional(kExcludeOutside, false),
          optional(kRoi, ResizeNumbers{}),
          optional(kExtrapolationValue, 0.0)};
}

GradValue resize_grad(Grad& g) {
  std::vector<NamedAttribute> attrs = g.same(resize_attrs());
  attrs.push_back(kShape(g.in_type(0).shape));
  return g.call("resize_grad", {g.dy()}, std::move(attrs));
}

}  // namespace

std::vector<OpDef> resize_ops() {
  std::vector<AttrDef> grad_attrs = resize_attrs();
  grad_attrs.push_back(required(kShape));
  return {
      {.name = "resize",
       .inputs = {{"t", kNumbersAndBool}},
       .attrs = resize_attrs(),
       .infer = infer_resize,
       .kernel = {.eval = eval_resize},
       .grad = per_input({resize_grad}),
       .numerics = kRoundsOnce},
      {.name = "resize_grad",
       .inputs = {{"dy", kFloating}},
       .attrs = std::move(grad_attrs),
       .infer = of_given_shape,
       .kernel = {.eval = eval_resize_grad},
       .numerics = kRoundsOnce,
       .program = {.internal = true}},
  };
}

}  // namespace popsr
