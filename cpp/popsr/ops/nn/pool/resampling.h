// Rules of ONNX's Resize along one axis: the place of a result in the operand, and the elements that it is
// a sum of. Positions and weights are float64.
#pragma once

#include <cstdint>
#include <vector>

#include "popsr/ir/attribute.h"
#include "popsr/ops/nn/pool/taps.h"

namespace popsr {

enum class ResampleMode : std::uint8_t { kNearest, kLinear, kCubic };
inline constexpr Choice<ResampleMode> kResampleModes[] = {
    {"nearest", ResampleMode::kNearest}, {"linear", ResampleMode::kLinear}, {"cubic", ResampleMode::kCubic}};

enum class NearestMode : std::uint8_t { kRoundPreferFloor, kRoundPreferCeil, kFloor, kCeil };
inline constexpr Choice<NearestMode> kNearestModes[] = {
    {"round_prefer_floor", NearestMode::kRoundPreferFloor},
    {"round_prefer_ceil", NearestMode::kRoundPreferCeil},
    {"floor", NearestMode::kFloor},
    {"ceil", NearestMode::kCeil}};

enum class Coordinates : std::uint8_t {
  kHalfPixel,
  kHalfPixelSymmetric,
  kPytorchHalfPixel,
  kAlignCorners,
  kAsymmetric,
  kTfCropAndResize
};

inline constexpr ChoiceAttr<ResampleMode> kResampleMode{"mode", kResampleModes};
inline constexpr ChoiceAttr<NearestMode> kNearestMode{"nearest_mode", kNearestModes};

inline constexpr double kCubicCoefficient = -0.75;

struct Resampling {
  ResampleMode mode = ResampleMode::kNearest;
  NearestMode nearest = NearestMode::kRoundPreferFloor;
  Coordinates coordinates = Coordinates::kHalfPixel;
  double cubic = kCubicCoefficient;  ///< Coefficient a of Keys' kernel.
  bool antialias = false;            ///< True if kernels are widened where the axis shrinks.
  /// True if elements outside have weight 0; otherwise the edge has their weights.
  bool exclude_outside = false;
};

/// Axis of `in` elements with `out` results; `span` is their number before rounding down. `begin` and
/// `end`: the region of kTfCropAndResize, as parts of the axis.
struct AxisExtents {
  std::int64_t in = 0, out = 0;
  double scale = 1, span = 0;
  double begin = 0, end = 1;
};

/// Blends of the results along an axis. `skips_outside`: a result that lies outside the operand has no
/// elements.
std::vector<Blend> blends_of(const Resampling& rule, const AxisExtents& axis, bool skips_outside = false);

}  // namespace popsr
