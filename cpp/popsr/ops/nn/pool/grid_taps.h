// Elements and weights of a sample at a computed place: the rules of PyTorch's grid_sample and ONNX's
// GridSample.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace popsr {

enum class GridMode : std::uint8_t { kNearest, kLinear, kCubic };
enum class GridPadding : std::uint8_t { kZeros, kBorder, kReflection };

inline constexpr std::size_t kGridAxes = 3;

/// An element of an axis, its weight, and the derivative of the weight with respect to the coordinate.
template <class T>
struct GridTap {
  std::int64_t index;
  T weight, slope;
};

/// Up to four elements along an axis.
template <class T>
struct GridTaps {
  std::array<GridTap<T>, 4> taps;
  std::size_t count = 0;

  void add(std::int64_t index, T weight, T slope) { taps[count++] = {index, weight, slope}; }
};

/// One spatial axis of the operand.
template <class T>
class GridAxis {
 public:
  GridAxis(GridMode mode, GridPadding padding, bool corners, std::int64_t extent)
      : mode_(mode),
        padding_(padding),
        extent_(extent),
        last_(static_cast<T>(extent - 1)),
        scale_(static_cast<T>(corners ? extent - 1 : extent) / 2),
        low_(corners ? T{0} : static_cast<T>(-0.5)),
        width_(static_cast<T>(corners ? extent - 1 : extent)) {}

  /// Elements for a coordinate, which is in the range -1 to 1. None if no element inside has a weight, or
  /// for NaN.
  GridTaps<T> at(T coordinate) const {
    Place place{(coordinate + 1) * scale_ + low_, scale_};
    if (mode_ != GridMode::kCubic) place = padded(place);
    if (!(std::abs(place.at) < static_cast<T>(1LL << 62))) return {};
    switch (mode_) {
      case GridMode::kNearest:
        return nearest(place);
      case GridMode::kLinear:
        return linear(place);
      default:
        return cubic(place);
    }
  }

 private:
  struct Place {
    T at, slope;  ///< Place on the axis, and its derivative with respect to the coordinate.
  };

  Place clipped(Place place) const {
    if (place.at <= 0) return {0, 0};
    if (place.at >= last_) return {last_, 0};
    return place;
  }
  Place reflected(Place place) const {
    if (width_ <= 0) return {0, 0};
    const T signed_distance = place.at - low_, distance = std::abs(signed_distance);
    const T rest = std::fmod(distance, 2 * width_);
    const bool back = rest > width_;
    return {(back ? 2 * width_ - rest : rest) + low_,
            back == (signed_distance < 0) ? place.slope : -place.slope};
  }
  Place padded(Place place) const {
    if (padding_ == GridPadding::kReflection) place = reflected(place);
    return padding_ == GridPadding::kZeros ? place : clipped(place);
  }

  void add(GridTaps<T>& taps, T at, T weight, T slope) const {
    if (at >= 0 && at <= last_) taps.add(static_cast<std::int64_t>(at), weight, slope);
  }
  GridTaps<T> nearest(Place place) const {
    GridTaps<T> taps;
    add(taps, std::nearbyint(place.at), 1, 0);
    return taps;
  }
  GridTaps<T> linear(Place place) const {
    GridTaps<T> taps;
    const T low = std::floor(place.at), rest = place.at - low;
    add(taps, low, 1 - rest, -place.slope);
    add(taps, low + 1, rest, place.slope);
    return taps;
  }
  /// Elements for Keys' kernel with a = -0.75; each neighbour outside is moved inside by itself.
  GridTaps<T> cubic(Place place) const {
    constexpr T kA = static_cast<T>(-0.75);
    GridTaps<T> taps;
    const T low = std::floor(place.at), rest = place.at - low;
    for (int k = -1; k <= 2; ++k) {
      const T d = std::abs(rest - static_cast<T>(k));
      const bool near = k == 0 || k == 1;
      const T weight =
          near ? ((kA + 2) * d - (kA + 3)) * d * d + 1 : ((kA * d - 5 * kA) * d + 8 * kA) * d - 4 * kA;
      const T slope = near ? (3 * (kA + 2) * d - 2 * (kA + 3)) * d : (3 * kA * d - 10 * kA) * d + 8 * kA;
      const T at = padded({low + static_cast<T>(k), 0}).at;
      add(taps, std::nearbyint(at), weight, (k > 0 ? -slope : slope) * place.slope);
    }
    return taps;
  }

  GridMode mode_;
  GridPadding padding_;
  std::int64_t extent_;
  T last_, scale_, low_, width_;
};

}  // namespace popsr
