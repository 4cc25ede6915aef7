// Remainders: a - trunc(a / b) * b, which every format holds exactly.
#include "popsr/kernels/level/math/elementwise-inl.h"
#include "popsr/kernels/level/simd/double_double-inl.h"

namespace popsr::kernels {
namespace {

/// Bit layout of a binary format.
template <class T>
struct Layout;
template <>
struct Layout<float> {
  using Bits = std::uint32_t;
  static constexpr int kFraction = 23;
};
template <>
struct Layout<double> {
  using Bits = unsigned long long;
  static constexpr int kFraction = 52;
};

/// |x| = significand * 2^(exponent - bias), exponent >= 1; finite x.
struct Decomposed {
  std::uint64_t significand;
  int exponent;
};
template <class T>
inline Decomposed decompose(T x) {
  constexpr int kFraction = Layout<T>::kFraction;
  const std::uint64_t u = bits_of(magnitude(x));
  const std::uint64_t fraction = u & ((1ULL << kFraction) - 1);
  const int field = static_cast<int>(u >> kFraction);
  return field == 0 ? Decomposed{fraction, 1} : Decomposed{fraction | (1ULL << kFraction), field};
}

/// The float significand * 2^(exponent - bias); significand < 2^(fraction bits + 1).
template <class T>
inline T compose(std::uint64_t significand, int exponent) {
  constexpr int kFraction = Layout<T>::kFraction;
  if (significand == 0) return 0;
  const int room = __builtin_clzll(significand) - (63 - kFraction);
  const bool subnormal = room >= exponent;
  const int shift = subnormal ? exponent - 1 : room;
  const std::uint64_t field = subnormal ? 0 : static_cast<std::uint64_t>(exponent - room);
  const std::uint64_t fraction = (significand << shift) & ((1ULL << kFraction) - 1);
  return from_bits(static_cast<typename Layout<T>::Bits>((field << kFraction) | fraction));
}

/// Long division of the significands, as many bits at a time as 64 hold.
template <class T>
inline T float_remainder(T a, T b) {
  const T infinity = static_cast<T>(kInfF64);
  if (!(magnitude(a) < infinity) || b == 0 || b != b) return static_cast<T>(kNanF64);
  if (magnitude(a) < magnitude(b)) return a;
  const Decomposed x = decompose(a);
  const Decomposed y = decompose(b);
  std::uint64_t rest = x.significand % y.significand;
  constexpr int kStep = 63 - Layout<T>::kFraction;
  for (int left = x.exponent - y.exponent; left > 0 && rest != 0; left -= kStep) {
    rest = (rest << (left < kStep ? left : kStep)) % y.significand;
  }
  return with_sign(compose<T>(rest, y.exponent), a);
}

/// b == 0 gives a, so that a == (a / b) * b + remainder: x / 0 is 0 here.
template <class T>
inline T integer_remainder(T a, T b) {
  if (b == 0) return a;
  if constexpr (Traits<T>::kSigned) {
    if (b == static_cast<T>(-1)) return 0;  // lowest / -1 traps.
  }
  return static_cast<T>(a % b);
}

/// |a| - q |b| with the sign of a, q = trunc(|a| / |b|): exact for quotients below 2^29 (float, in double) or
/// 2^51, which the rounded division misses by one at most, and upwards only.
struct NearRemainder {
  [[gnu::always_inline]] static float apply(float a, float b) {
    const double x = magnitude(static_cast<double>(a));
    const double y = magnitude(static_cast<double>(b));
    const double rest = x - __builtin_trunc(x / y) * y;
    return with_sign(static_cast<float>(rest < 0.0 ? rest + y : rest), a);
  }
  [[gnu::always_inline]] static double apply(double a, double b) {
    const double y = magnitude(b);
    const DoubleDouble product = two_product(__builtin_trunc(magnitude(a) / y), y);
    const double rest = (magnitude(a) - product.hi) - product.lo;
    return with_sign(rest < 0.0 ? rest + y : rest, a);
  }
  /// False for NaN, infinities and zero divisors too.
  [[gnu::always_inline]] static bool holds(float a, float b) {
    return (magnitude(static_cast<double>(a)) < 0x1p29 * magnitude(static_cast<double>(b))) &
           (magnitude(b) < kInfF32);
  }
  [[gnu::always_inline]] static bool holds(double a, double b) {
    const double y = magnitude(b);
    return (magnitude(a) < 0x1p51 * y) & (magnitude(a) < 0x1p990) & (y > 0x1p-900) & (y < 0x1p990);
  }
};

/// The dividend is x[i] + increment; y moves by `step`.
template <class T>
void remainder_loop(T* out, const T* x, T increment, const T* y, std::int64_t step, std::int64_t n) {
  if constexpr (Traits<T>::kFloat) {
    constexpr std::int64_t kPiece = 64;
    for (std::int64_t begin = 0; begin < n; begin += kPiece) {
      const std::int64_t count = n - begin < kPiece ? n - begin : kPiece;
      T dividend[kPiece];
      T divisor[kPiece];
      T rest[kPiece];
      unsigned far = 0;
      for (std::int64_t i = 0; i < count; ++i) {
        dividend[i] = x[begin + i] + increment;
        divisor[i] = y[(begin + i) * step];
      }
      for (std::int64_t i = 0; i < count; ++i) {
        rest[i] = NearRemainder::apply(dividend[i], divisor[i]);
        far |= NearRemainder::holds(dividend[i], divisor[i]) ? 0U : 1U;
      }
      for (std::int64_t i = 0; far != 0 && i < count; ++i) {
        if (!NearRemainder::holds(dividend[i], divisor[i]))
          rest[i] = float_remainder(dividend[i], divisor[i]);
      }
      __builtin_memcpy(out + begin, rest, static_cast<std::size_t>(count) * sizeof(T));
    }
  } else {
    for (std::int64_t i = 0; i < n; ++i) {
      const auto sum = static_cast<T>(static_cast<Word<T>>(x[i]) + static_cast<Word<T>>(increment));
      out[i] = integer_remainder(sum, y[i * step]);
    }
  }
}

struct Fmod {
  template <class T>
  static void run(void* hi, void*, const void* const* in, std::int64_t n, const double*) {
    const T zero = static_cast<T>(-0.0);  // x + -0 is x, for x = -0 too.
    remainder_loop(static_cast<T*>(hi), static_cast<const T*>(in[0]), zero, static_cast<const T*>(in[1]), 1,
                   n);
  }
};

struct IncrementMod {
  template <class T>
  static void run(void* hi, void*, const void* const* in, std::int64_t n, const double* p) {
    const T modulus = scalar_as<T>(p[1]);
    remainder_loop(static_cast<T*>(hi), static_cast<const T*>(in[0]), scalar_as<T>(p[0]), &modulus, 0, n);
  }
};

}  // namespace

constexpr ElementwiseKernels kFmodKernels = kernels_of<Fmod, ElementwiseOp::kFmod>();
constexpr ElementwiseKernels kIncrementModKernels = kernels_of<IncrementMod, ElementwiseOp::kIncrementMod>();

}  // namespace popsr::kernels
