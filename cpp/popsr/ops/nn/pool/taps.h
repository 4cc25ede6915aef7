// Results along an axis that are weighted sums of a few elements: resampling, and its transpose.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <vector>

namespace popsr {

/// One result: elements and their weights, ascending by index. Elements of weight 0 are left out, so that
/// an infinite neighbour with weight 0 does not make the result NaN.
class Blend {
 public:
  struct Tap {
    std::int64_t index;
    double weight;
  };

  /// Adds an element; `index` is not below the index of the last element but one.
  void add(std::int64_t index, double weight) {
    if (weight == 0) return;
    const auto recent = taps_.end() - std::min<std::ptrdiff_t>(std::ssize(taps_), 2);
    const auto same = std::ranges::find(recent, taps_.end(), index, &Tap::index);
    if (same == taps_.end()) {
      taps_.push_back({index, weight});
    } else {
      same->weight += weight;
    }
  }
  const std::vector<Tap>& taps() const { return taps_; }

 private:
  std::vector<Tap> taps_ = {};
};

/// Results along an axis, with weights of the type T that they are computed in.
template <class T>
class AxisTaps {
 public:
  explicit AxisTaps(const std::vector<Blend>& blends) {
    for (const Blend& blend : blends) {
      for (const Blend::Tap& tap : blend.taps()) taps_.push_back({tap.index, static_cast<T>(tap.weight)});
      ends_.push_back(taps_.size());
    }
  }
  std::int64_t size() const { return static_cast<std::int64_t>(ends_.size()) - 1; }

  /// Computes result `result` of runs of n elements: to[i] = sum of weight * from[index * n + i],
  /// ascending. A result without elements is `none`.
  void blend(std::int64_t result, const T* from, T* to, std::int64_t n, T none = 0) const {
    const std::span<const Tap> taps = of(result);
    if (taps.empty()) return static_cast<void>(std::fill_n(to, n, none));
    const T* const first = from + taps[0].index * n;
    for (std::int64_t i = 0; i < n; ++i) to[i] = taps[0].weight * first[i];
    for (const Tap& tap : taps.subspan(1)) {
      const T* const run = from + tap.index * n;
      for (std::int64_t i = 0; i < n; ++i) to[i] += tap.weight * run[i];
    }
  }
  /// Computes all results, for runs of one element.
  void blend_line(const T* from, T* to, T none) const {
    const Tap* tap = taps_.data();
    for (std::size_t r = 0; r + 1 < ends_.size(); ++r) {
      const Tap* const end = taps_.data() + ends_[r + 1];
      if (tap == end) {
        to[r] = none;
        continue;
      }
      T sum = tap->weight * from[tap->index];
      for (++tap; tap != end; ++tap) sum += tap->weight * from[tap->index];
      to[r] = sum;
    }
  }
  /// Transpose of blend(): to[index * n + i] += weight * from[i].
  void scatter(std::int64_t result, const T* from, T* to, std::int64_t n) const {
    for (const Tap& tap : of(result)) {
      T* const run = to + tap.index * n;
      for (std::int64_t i = 0; i < n; ++i) run[i] += tap.weight * from[i];
    }
  }

 private:
  struct Tap {
    std::int64_t index;
    T weight;
  };
  std::span<const Tap> of(std::int64_t result) const {
    const auto r = static_cast<std::size_t>(result);
    return std::span(taps_).subspan(ends_[r], ends_[r + 1] - ends_[r]);
  }

  std::vector<Tap> taps_ = {};
  std::vector<std::size_t> ends_ = {0};
};

}  // namespace popsr
