#include "popsr/ops/nn/pool/resampling.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace popsr {
namespace {

/// Position in the operand of result i.
double position(Coordinates rule, std::int64_t i, const AxisExtents& axis) {
  const auto x = static_cast<double>(i), last = static_cast<double>(axis.in - 1);
  const double half_pixel = (x + 0.5) / axis.scale - 0.5;
  switch (rule) {
    case Coordinates::kHalfPixel:
      return half_pixel;
    case Coordinates::kHalfPixelSymmetric: {
      const double adjustment = static_cast<double>(axis.out) / axis.span;
      return static_cast<double>(axis.in) / 2 * (1 - adjustment) + half_pixel;
    }
    case Coordinates::kPytorchHalfPixel:
      return axis.out > 1 ? half_pixel : 0;
    case Coordinates::kAsymmetric:
      return x / axis.scale;
    case Coordinates::kAlignCorners:
      return axis.out > 1 ? x * last / (axis.span - 1) : 0;
    case Coordinates::kTfCropAndResize:
      break;
  }
  if (axis.out <= 1) return 0.5 * (axis.begin + axis.end) * last;
  return axis.begin * last + x * (axis.end - axis.begin) * last / static_cast<double>(axis.out - 1);
}

double rounded(NearestMode rule, double x) {
  if (rule == NearestMode::kRoundPreferFloor) return std::ceil(x - 0.5);
  if (rule == NearestMode::kRoundPreferCeil) return std::floor(x + 0.5);
  return rule == NearestMode::kFloor ? std::floor(x) : std::ceil(x);
}

/// Keys' kernel at distances up to 1, and from 1 to 2.
double cubic_near(double a, double x) { return ((a + 2) * x - (a + 3)) * x * x + 1; }
double cubic_far(double a, double x) { return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a; }

/// Weights of the neighbours floor(x) - 1 to floor(x) + 2 for a fraction s.
std::array<double, 4> cubic_weights(double a, double s) {
  return {cubic_far(a, s + 1), cubic_near(a, s), cubic_near(a, 1 - s), cubic_far(a, 2 - s)};
}

double kernel_at(const Resampling& rule, double distance) {
  const double d = std::abs(distance);
  if (rule.mode == ResampleMode::kLinear) return std::max(1 - d, 0.0);
  return d <= 1 ? cubic_near(rule.cubic, d) : d < 2 ? cubic_far(rule.cubic, d) : 0;
}

struct Neighbours {
  double first = 0;
  std::vector<double> weights = {};
};

/// Neighbours for linear and cubic kernels.
Neighbours neighbours_of(const Resampling& rule, const AxisExtents& axis, double x) {
  const bool linear = rule.mode == ResampleMode::kLinear;
  if (rule.antialias && axis.scale < 1) {
    const double radius = std::ceil((linear ? 1 : 2) / axis.scale) + 1;
    Neighbours made{.first = std::floor(x) - radius};
    for (double k = 0; k <= 2 * radius; ++k) {
      made.weights.push_back(kernel_at(rule, (made.first + k - x) * axis.scale));
    }
    return made;
  }
  if (linear && !rule.exclude_outside) x = std::clamp(x, 0.0, static_cast<double>(axis.in - 1));
  const double low = std::floor(x), s = x - low;
  if (linear) return {.first = low, .weights = {1 - s, s}};
  const std::array<double, 4> weights = cubic_weights(rule.cubic, s);
  return {.first = low - 1, .weights = {weights.begin(), weights.end()}};
}

/// Weights that sum to 1, where some are left out or the kernel was widened.
void normalize(const Resampling& rule, const AxisExtents& axis, Neighbours& of) {
  if (rule.exclude_outside) {
    for (std::size_t k = 0; k < of.weights.size(); ++k) {
      const double at = of.first + static_cast<double>(k);
      if (at < 0 || at > static_cast<double>(axis.in - 1)) of.weights[k] = 0;
    }
  } else if (!rule.antialias || axis.scale >= 1) {
    return;
  }
  double sum = 0;
  for (const double weight : of.weights) sum += weight;
  for (double& weight : of.weights) weight = sum == 0 ? 0 : weight / sum;
}

/// Neighbours outside the operand are its first or last element.
Blend blend_at(const Resampling& rule, const AxisExtents& axis, double x) {
  Blend blend;
  const auto add = [&](double at, double weight) {
    blend.add(static_cast<std::int64_t>(std::clamp(at, 0.0, static_cast<double>(axis.in - 1))), weight);
  };
  if (rule.mode == ResampleMode::kNearest) {
    add(rounded(rule.nearest, x), 1);
    return blend;
  }
  Neighbours near = neighbours_of(rule, axis, x);
  normalize(rule, axis, near);
  for (std::size_t k = 0; k < near.weights.size(); ++k) {
    add(near.first + static_cast<double>(k), near.weights[k]);
  }
  return blend;
}

}  // namespace

std::vector<Blend> blends_of(const Resampling& rule, const AxisExtents& axis, bool skips_outside) {
  std::vector<Blend> blends;
  for (std::int64_t i = 0; i < axis.out; ++i) {
    const double x = position(rule.coordinates, i, axis);
    const bool outside = skips_outside && (x < 0 || x > static_cast<double>(axis.in - 1));
    blends.push_back(outside ? Blend{} : blend_at(rule, axis, x));
  }
  return blends;
}

}  // namespace popsr
