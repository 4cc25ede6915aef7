// Conversions between compute types. Float to integer truncates, saturates, NaN -> 0; integers wrap; to bool:
// != 0.
#pragma once

#include "popsr/kernels/level/common-inl.h"

namespace popsr::kernels {
namespace {

/// Conversion of one element. The comparisons come before the conversion, so that no out-of-range
/// conversion (undefined, and different per instruction) is ever executed.
template <class To, class From>
[[gnu::always_inline]] inline To saturate(From x) {
  // Limit 2^(bits-1) or 2^bits: the first value beyond the type, exact in float.
  constexpr From kLimit = static_cast<From>(1ULL << (8 * sizeof(To) - (Traits<To>::kSigned ? 2 : 1))) * 2;
  constexpr From kLowest = Traits<To>::kSigned ? -kLimit : static_cast<From>(0);
  const From inside = x >= kLowest && x < kLimit ? x : static_cast<From>(0);  // NaN becomes 0.
  const To converted = static_cast<To>(inside);
  const To low = x < kLowest ? lowest_integer<To>() : converted;
  return x >= kLimit ? highest_integer<To>() : low;
}

template <class To, class From>
struct Cast {
  [[gnu::always_inline]] static To apply(From x) {
    if constexpr (Traits<From>::kFloat && !Traits<To>::kFloat)
      return saturate<To>(x);
    else
      return static_cast<To>(x);
  }
};
template <class To>
struct Cast<To, Bool> {
  [[gnu::always_inline]] static To apply(Bool x) {
    return x.value != 0 ? static_cast<To>(1) : static_cast<To>(0);
  }
};
template <class From>
struct Cast<Bool, From> {
  [[gnu::always_inline]] static Bool apply(From x) { return {static_cast<std::uint8_t>(x != 0 ? 1 : 0)}; }
};
template <>
struct Cast<Bool, Bool> {
  [[gnu::always_inline]] static Bool apply(Bool x) {
    return {static_cast<std::uint8_t>(x.value != 0 ? 1 : 0)};
  }
};

template <class To, class From>
void cast_loop(void* out, const void* in, std::int64_t n) {
  const From* x = static_cast<const From*>(in);
  To* y = static_cast<To*>(out);
  for (std::int64_t i = 0; i < n; ++i) y[i] = Cast<To, From>::apply(x[i]);
}

/// Loop of a conversion. Integers wrap, so that the sign of the result makes no difference to its bits, nor
/// does that of what is cut or compared with 0: four integers of a width share a loop.
template <class To, class From>
consteval auto cast_of() {
  constexpr bool kIsCut = sizeof(From) >= sizeof(To) && !Traits<To>::kFloat;
  if constexpr (Traits<From>::kFloat)
    return cast_loop<To, From>;
  else if constexpr (kIsCut)
    return cast_loop<Unsigned<To>, Unsigned<From>>;
  else
    return cast_loop<Unsigned<To>, From>;
}

}  // namespace
}  // namespace popsr::kernels
