// interpolate: the Resize of ONNX, one axis after another, the outermost first. Each result along an axis is
// a sum over its neighbours in ascending order; the gradient adds in the order of the results.
#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <utility>

#include "popsr/base/error.h"
#include "popsr/exec/block_kernel.h"
#include "popsr/ops/attributes.h"
#include "popsr/ops/infer.h"
#include "popsr/ops/loops/blocks.h"
#include "popsr/ops/loops/plane_walk.h"
#include "popsr/ops/loops/tiles.h"
#include "popsr/ops/nn/pool/taps.h"
#include "popsr/ops/registry.h"

namespace popsr {
namespace {

// Attributes

enum class Mode : std::uint8_t { kNearest, kLinear, kCubic };
constexpr Choice<Mode> kModes[] = {
    {"nearest", Mode::kNearest}, {"linear", Mode::kLinear}, {"cubic", Mode::kCubic}};

enum class NearestMode : std::uint8_t { kRoundPreferFloor, kRoundPreferCeil, kFloor, kCeil };
constexpr Choice<NearestMode> kNearestModes[] = {{"round_prefer_floor", NearestMode::kRoundPreferFloor},
                                                 {"round_prefer_ceil", NearestMode::kRoundPreferCeil},
                                                 {"floor", NearestMode::kFloor},
                                                 {"ceil", NearestMode::kCeil}};

enum class Coordinates : std::uint8_t {
  kHalfPixel,
  kPytorchHalfPixel,
  kAlignCorners,
  kAsymmetric,
  kTfCropAndResize
};
constexpr Choice<Coordinates> kCoordinates[] = {{"half_pixel", Coordinates::kHalfPixel},
                                                {"pytorch_half_pixel", Coordinates::kPytorchHalfPixel},
                                                {"align_corners", Coordinates::kAlignCorners},
                                                {"asymmetric", Coordinates::kAsymmetric},
                                                {"tf_crop_and_resize", Coordinates::kTfCropAndResize}};

constexpr Attr<std::vector<double>> kScaleFactor{"scale_factor"};
constexpr ChoiceAttr<Mode> kMode{"mode", kModes};
constexpr ChoiceAttr<NearestMode> kNearestMode{"nearest_mode", kNearestModes};
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

// Positions of results in the operand, and their neighbours

/// Position in the operand of result i of an axis.
double position(Coordinates rule, std::int64_t i, double scale, std::int64_t in, std::int64_t out) {
  const auto x = static_cast<double>(i), last = static_cast<double>(in - 1);
  if (rule == Coordinates::kHalfPixel) return (x + 0.5) / scale - 0.5;
  if (rule == Coordinates::kPytorchHalfPixel) return out > 1 ? (x + 0.5) / scale - 0.5 : 0;
  if (rule == Coordinates::kAsymmetric) return x / scale;
  if (out > 1) return x * last / static_cast<double>(out - 1);
  return rule == Coordinates::kAlignCorners ? 0 : 0.5 * last;  // The middle of the whole operand.
}

double rounded(NearestMode rule, double x) {
  if (rule == NearestMode::kRoundPreferFloor) return std::ceil(x - 0.5);
  if (rule == NearestMode::kRoundPreferCeil) return std::floor(x + 0.5);
  return rule == NearestMode::kFloor ? std::floor(x) : std::ceil(x);
}

/// Weights of the neighbours floor(x) - 1 to floor(x) + 2 for a fraction s: Keys' kernel with a = -0.75.
std::array<double, 4> cubic_weights(double s) {
  constexpr double kA = -0.75;
  const auto near = [](double x) { return ((kA + 2) * x - (kA + 3)) * x * x + 1; };
  const auto far = [](double x) { return ((kA * x - 5 * kA) * x + 8 * kA) * x - 4 * kA; };
  return {far(s + 1), near(s), near(1 - s), far(2 - s)};
}

/// Neighbours outside the operand are its first or last element.
Blend blend_at(const Op& op, double x, std::int64_t in) {
  Blend blend;
  const auto add = [&](double at, double weight) {
    blend.add(static_cast<std::int64_t>(std::clamp(at, 0.0, static_cast<double>(in - 1))), weight);
  };
  const Mode mode = op.get(kMode);
  if (mode == Mode::kNearest) {
    add(rounded(op.get(kNearestMode), x), 1);
    return blend;
  }
  if (mode == Mode::kLinear) x = std::clamp(x, 0.0, static_cast<double>(in - 1));
  const double low = std::floor(x), s = x - low;
  if (mode == Mode::kLinear) {
    add(low, 1 - s);
    add(low + 1, s);
    return blend;
  }
  const std::array<double, 4> weights = cubic_weights(s);
  for (int k = 0; k < 4; ++k) add(low + k - 1, weights[static_cast<std::size_t>(k)]);
  return blend;
}

// Kernels

/// One scaled axis of a plane: `outer` times `in` runs of `inner` elements become `outer` times `out` runs.
template <class T>
struct Pass {
  std::int64_t outer, in, inner;
  AxisTaps<T> taps;

  std::int64_t elements() const { return outer * in * inner; }
  std::int64_t results() const { return outer * taps.size() * inner; }
  void forward(const T* from, T* to) const {
    for (std::int64_t o = 0; o < outer; ++o) {
      for (std::int64_t i = 0; i < taps.size(); ++i) {
        taps.blend(i, from + o * in * inner, to + (o * taps.size() + i) * inner, inner);
      }
    }
  }
  void backward(const T* from, T* to) const {
    std::fill_n(to, elements(), T{0});
    for (std::int64_t o = 0; o < outer; ++o) {
      for (std::int64_t i = 0; i < taps.size(); ++i) {
        taps.scatter(i, from + (o * taps.size() + i) * inner, to + o * in * inner, inner);
      }
    }
  }
};

template <class T>
class Interpolation {
 public:
  Interpolation(const Op& op, const Shape& t, const Shape& result) {
    const std::vector<double>& factors = op.get(kScaleFactor);
    const Coordinates rule = op.get(kCoordinateMode);
    const auto scaled = [&](std::size_t d) { return factors[d] != 1; };
    std::size_t first = 0;
    while (first < t.size() && !scaled(first)) planes_ *= t[first++];
    for (std::size_t d = first; d < t.size(); ++d) {
      if (!scaled(d)) continue;
      const auto at = static_cast<std::ptrdiff_t>(d);
      std::vector<Blend> blends;
      for (std::int64_t i = 0; i < result[d]; ++i) {
        blends.push_back(blend_at(op, position(rule, i, factors[d], t[d], result[d]), t[d]));
      }
      passes_.push_back({.outer = num_elements(
                             Shape(result.begin() + static_cast<std::ptrdiff_t>(first), result.begin() + at)),
                         .in = t[d],
                         .inner = num_elements(Shape(t.begin() + at + 1, t.end())),
                         .taps = AxisTaps<T>(blends)});
    }
  }

  bool empty() const { return passes_.empty(); }
  std::int64_t planes() const { return planes_; }
  /// Two buffers for what lies between passes.
  std::int64_t scratch() const { return 2 * between(); }

  void forward(const PlaneArgs& args) const {
    const auto* from = reinterpret_cast<const T*>(args.in[0]);
    for (std::size_t p = 0; p < passes_.size(); ++p) {
      T* const to = p + 1 == passes_.size() ? reinterpret_cast<T*>(args.out) : buffer(args, p);
      passes_[p].forward(from, to);
      from = to;
    }
  }
  void backward(const PlaneArgs& args) const {
    const auto* from = reinterpret_cast<const T*>(args.in[0]);
    for (std::size_t p = passes_.size(); p-- > 0;) {
      T* const to = p == 0 ? reinterpret_cast<T*>(args.out) : buffer(args, p);
      passes_[p].backward(from, to);
      from = to;
    }
  }

 private:
  std::int64_t between() const {
    std::int64_t most = 0;
    for (std::size_t p = 1; p < passes_.size(); ++p) most = std::max(most, passes_[p].elements());
    return most;
  }
  T* buffer(const PlaneArgs& args, std::size_t p) const {
    return reinterpret_cast<T*>(args.scratch) + static_cast<std::int64_t>(p % 2) * between();
  }

  std::int64_t planes_ = 1;
  std::vector<Pass<T>> passes_ = {};
};

template <class T, bool backward>
BlockKernel kernel_of(const EvalSpec& spec) {
  const Shape &in = spec.inputs[0]->shape, &out = spec.outputs[0].shape;
  const auto plan =
      std::make_shared<const Interpolation<T>>(spec.op, backward ? out : in, backward ? in : out);
  if (plan->empty()) return copy_kernel(spec);
  return plane_kernel(spec, plan->planes(), plan->scratch(), [plan](const PlaneArgs& args) {
    backward ? plan->backward(args) : plan->forward(args);
  });
}

template <bool backward>
BlockKernel eval_interpolate(const EvalSpec& spec) {
  return spec.outputs[0].dtype == DType::kFloat64 ? kernel_of<double, backward>(spec)
                                                  : kernel_of<float, backward>(spec);
}

// Definitions

std::vector<AttrDef> interpolate_attrs() {
  return {optional(kScaleFactor, {1, 1, 1, 1}), optional(kMode, Mode::kNearest),
          optional(kNearestMode, NearestMode::kRoundPreferFloor),
          optional(kCoordinateMode, Coordinates::kHalfPixel)};
}

GradValue interpolate_grad(Grad& g) {
  std::vector<NamedAttribute> attrs = g.same(interpolate_attrs());
  attrs.push_back(kShape(g.in_type(0).shape));
  return g.call("interpolate_grad", {g.dy()}, std::move(attrs));
}

std::vector<OutputDef> infer_interpolate_grad(const InferContext& context) {
  return {{{context.type(0).dtype, context.get(kShape)}, {}}};
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
       .infer = infer_interpolate_grad,
       .kernel = {.eval = eval_interpolate<true>},
       .numerics = kRoundsOnce,
       .program = {.internal = true}},
  };
}

}  // namespace popsr
