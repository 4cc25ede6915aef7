// interpolate: the Resize of ONNX, one axis after another, the outermost first. Each result along an axis is
// a sum over its neighbours in ascending order; the gradient adds in the order of the results.
#include <cmath>
#include <utility>

#include "popsr/base/error.h"
#include "popsr/exec/block_kernel.h"
#include "popsr/ops/attributes.h"
#include "popsr/ops/infer.h"
#include "popsr/ops/nn/pool/axis_passes.h"
#include "popsr/ops/nn/pool/resampling.h"
#include "popsr/ops/registry.h"

namespace popsr {
namespace {

// Attributes

/// The rules that the reference's op has too.
constexpr Choice<Coordinates> kCoordinates[] = {{"half_pixel", Coordinates::kHalfPixel},
                                                {"pytorch_half_pixel", Coordinates::kPytorchHalfPixel},
                                                {"align_corners", Coordinates::kAlignCorners},
                                                {"asymmetric", Coordinates::kAsymmetric},
                                                {"tf_crop_and_resize", Coordinates::kTfCropAndResize}};

constexpr Attr<std::vector<double>> kScaleFactor{"scale_factor"};
constexpr ChoiceAttr<Coordinates> kCoordinateMode{"coordinate_transformation_mode", kCoordinates};

Shape scaled_shape(const Op& op, const Shape& t) {
  constexpr double kMost = 1LL << 40;
  const std::vector<double>& factors = op.get(kScaleFactor);
  if (factors.size() != t.size()) {
    raise<AttributeValueError>("{}: scale_factor has the wrong length, got {} numbers, expected {}",
                               op.def->name, factors.size(), t.size());
  }
  Shape shape;
  for (std::size_t d = 0; d < t.size(); ++d) {
    const double extent = std::floor(static_cast<double>(t[d]) * factors[d]);
    if (!(factors[d] > 0) || !(factors[d] < kMost) || !(extent < kMost)) {
      raise<AttributeValueError>(
          "{}: scale_factor is out of range, got {} on axis {}, expected a positive "
          "number",
          op.def->name, factors[d], d);
    }
    if (t[d] > 0 && extent == 0) {
      raise<ShapeError>(
          "{}: nothing would be left, got scale_factor {} on axis {} of {}, expected 1 / {} or "
          "more",
          op.def->name, factors[d], d, to_string(t), t[d]);
    }
    shape.push_back(static_cast<std::int64_t>(extent));
  }
  return shape;
}

std::vector<OutputDef> infer_interpolate(const InferContext& context) {
  const TensorType& t = context.type(0);
  return {{{t.dtype, scaled_shape(context.op, t.shape)}, {}}};
}

// Kernels

/// The tables of the axes whose scale is not 1.
std::vector<ResampledAxis> scaled_axes(const Op& op, const Shape& t, const Shape& result) {
  const std::vector<double>& factors = op.get(kScaleFactor);
  const Resampling rule{
      .mode = op.get(kResampleMode), .nearest = op.get(kNearestMode), .coordinates = op.get(kCoordinateMode)};
  std::vector<ResampledAxis> axes;
  for (std::size_t d = 0; d < t.size(); ++d) {
    if (factors[d] == 1) continue;
    const auto out = static_cast<double>(result[d]);
    const AxisExtents extents{.in = t[d], .out = result[d], .scale = factors[d], .span = out};
    axes.push_back({.axis = d, .blends = blends_of(rule, extents)});
  }
  return axes;
}

template <bool backward>
BlockKernel eval_interpolate(const EvalSpec& spec) {
  const Shape &in = spec.inputs[0]->shape, &out = spec.outputs[0].shape;
  return resample_kernel<backward>(spec,
                                   backward ? scaled_axes(spec.op, out, in) : scaled_axes(spec.op, in, out));
}

// Definitions

std::vector<AttrDef> interpolate_attrs() {
  return {optional(kScaleFactor, {1, 1, 1, 1}), optional(kResampleMode, ResampleMode::kNearest),
          optional(kNearestMode, NearestMode::kRoundPreferFloor),
          optional(kCoordinateMode, Coordinates::kHalfPixel)};
}

GradValue interpolate_grad(Grad& g) {
  std::vector<NamedAttribute> attrs = g.same(interpolate_attrs());
  attrs.push_back(kShape(g.in_type(0).shape));
  return g.call("interpolate_grad", {g.dy()}, std::move(attrs));
}

}  // namespace

std::vector<OpDef> interpolate_ops() {
  std::vector<AttrDef> grad_attrs = interpolate_attrs();
  grad_attrs.push_back(required(kShape));
  return {
      {.name = "interpolate",
       .inputs = {{"t", kFloating}},
       .attrs = interpolate_attrs(),
       .infer = infer_interpolate,
       .kernel = {.eval = eval_interpolate<false>},
       .grad = per_input({interpolate_grad}),
       .numerics = kRoundsOnce},
      {.name = "interpolate_grad",
       .inputs = {{"dy", kFloating}},
       .attrs = std::move(grad_attrs),
       .infer = of_given_shape,
       .kernel = {.eval = eval_interpolate<true>},
       .numerics = kRoundsOnce,
       .program = {.internal = true}},
  };
}

}  // namespace popsr
