// Larger and smaller of two numbers; NaN is both larger and smaller than all numbers.
#pragma once

#include "popsr/kernels/level/common-inl.h"

namespace popsr::kernels {
namespace {

/// Equal floats differ in the sign of zero only: "and" makes max(-0, +0) = +0, "or" makes min(-0, +0) = -0.
struct Maximum {
  template <class T>
  [[gnu::always_inline]] static T apply(T a, T b) {
    if constexpr (Traits<T>::kFloat) {
      const T both = from_bits(bits_of(a) & bits_of(b));
      const T ordered = a > b ? a : (a == b ? both : b);
      return a != a ? a : ordered;
    } else {
      return a > b ? a : b;
    }
  }
};

struct Minimum {
  template <class T>
  [[gnu::always_inline]] static T apply(T a, T b) {
    if constexpr (Traits<T>::kFloat) {
      const T both = from_bits(bits_of(a) | bits_of(b));
      const T ordered = a < b ? a : (a == b ? both : b);
      return a != a ? a : ordered;
    } else {
      return a < b ? a : b;
    }
  }
};

}  // namespace
}  // namespace popsr::kernels
