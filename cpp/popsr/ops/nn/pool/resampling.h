// The rules of ONNX's Resize along one axis: where a result lies in the operand, and which elements it is
// made of. Positions and weights are float64.
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
  double cubic = kCubicCoefficient;  ///< The coefficient a of Keys' kernel.
  bool antialias = false;            ///< Kernels are widened where the axis shrinks.
  bool exclude_outside = false;      ///< Elements outside have weight 0; else the edge has their weights.
};

/// An axis of `in` elements with `out` results; `span` is their number before it is rounded down. `begin`
/// and `end`: the region of kTfCropAndResize, as parts of the axis.
struct AxisExtents {
  std::int64_t in = 0, out = 0;
  double scale = 1, span = 0;
  double begin = 0, end = 1;
};

/// The results along an axis. `skips_outside`: a result that lies outside the operand has no elements.
std::vector<Blend> blends_of(const Resampling& rule, const AxisExtents& axis, bool skips_outside = false);

}  // namespace popsr
