// Cube roots, reciprocals and integer powers. Worst errors in ulp: cbrt 0.501 of float and double (bounds
// 0.51 and 0.55); a reciprocal is rounded once.
#include "popsr/kernels/level/math/elementwise-inl.h"
#include "popsr/kernels/level/simd/double_double-inl.h"

namespace popsr::kernels {
namespace {

/// Three steps of Halley's method from a guess of 5 bits, then one of Newton's whose residual is exact.
[[gnu::always_inline]] inline double cbrt_of(double x) {
  const double a = magnitude(x);
  const bool small = a<0x1p-960, large = a> 0x1p960;
  const double scaled = a * (small ? 0x1p108 : (large ? 0x1p-108 : 1.0));
  // A third of the exponent: 682 = 1023 - 1023 / 3, less what the mantissa as a logarithm is too small.
  double t = from_bits(bits_of(scaled) / 3 + (715094163ULL << 32));
  for (int k = 0; k < 3; ++k) {
    const double cube = t * t * t;
    t = t * ((cube + (scaled + scaled)) / ((cube + cube) + scaled));
  }
  const DoubleDouble square = two_product(t, t);
  const DoubleDouble cube = two_product(square.hi, t);
  const double residual = ((scaled - cube.hi) - cube.lo) - square.lo * t;
  const double root = (t + residual / (3.0 * square.hi)) * (small ? 0x1p-36 : (large ? 0x1p36 : 1.0));
  return (a > 0.0) & (a < kInfF64) ? with_sign(root, x) : x;
}

struct Cbrt {
  template <class T>
  [[gnu::always_inline]] static T apply(T x) {
    return static_cast<T>(cbrt_of(static_cast<double>(x)));
  }
};

struct Reciprocal {
  template <class T>
  [[gnu::always_inline]] static T apply(T x) {
    return static_cast<T>(1) / x;
  }
};

/// The product of the squares x^(2^k) for the bits k of the exponent, from the lowest; its reciprocal for a
/// negative one, which floats alone have. Integers wrap.
struct IntegerPow {
  template <class T>
  [[gnu::always_inline]] static T product(T a, T b) {
    if constexpr (Traits<T>::kFloat)
      return a * b;
    else
      return static_cast<T>(static_cast<Word<T>>(a) * static_cast<Word<T>>(b));
  }
  template <class T>
  static void run(void* hi, void*, const void* const* in, std::int64_t n, const double* p) {
    const T* x = static_cast<const T*>(in[0]);
    T* out = static_cast<T*>(hi);
    const bool inverts = p[0] < 0;
    const std::uint64_t exponent = static_cast<std::uint64_t>(magnitude(p[0]));
    for (std::int64_t i = 0; i < n; ++i) {
      T square = x[i], power = 1;
      bool first = true;
      for (std::uint64_t bits = exponent; bits != 0; bits >>= 1) {
        if ((bits & 1U) != 0) power = first ? square : product(power, square);
        first = first && (bits & 1U) == 0;
        if (bits > 1) square = product(square, square);
      }
      if constexpr (Traits<T>::kFloat) power = inverts ? static_cast<T>(1) / power : power;
      out[i] = power;
    }
  }
};

}  // namespace

constexpr ElementwiseKernels kCbrtKernels = kernels_of<Cbrt, ElementwiseOp::kCbrt>();
constexpr ElementwiseKernels kReciprocalKernels = kernels_of<Reciprocal, ElementwiseOp::kReciprocal>();
constexpr ElementwiseKernels kIntegerPowKernels = kernels_of<IntegerPow, ElementwiseOp::kIntegerPow>();

}  // namespace popsr::kernels
