// e^x - 1, log(1 + x), 2^x, and hyperbolic functions with their inverses. Floats are computed in double.
// Worst errors in ulp, measured against long double on dense samples and all binades; of floats 0.500 (bound
// 0.51):
//
//   expm1 1.05 (bound 1.5)  log1p 1.14 (bound 2)  exp2  0.80 (bound 1)
//   sinh  2.10 (bound 2.5)  cosh  1.28 (bound 2)
//   asinh 1.86 (bound 3)    acosh 2.32 (bound 3)  atanh 1.93 (bound 3)
#include "popsr/kernels/level/math/elementwise-inl.h"
#include "popsr/kernels/level/math/functions/functions_f64-inl.h"

namespace popsr::kernels {
namespace {

inline constexpr double kLn2 = 0x1.62e42fefa39efp-1, kLn2Rest = 0x1.abc9e3b39803fp-56;
inline constexpr double kMagic = 6755399441055744.0;  ///< 1.5 * 2^52: adding it rounds to an integer.

/// e^x = 2^n (1 + p), so e^x - 1 = (2^n - 1) + 2^n p.
[[gnu::always_inline]] inline double expm1_of(double x) {
  const double clamped = at_most(at_least(x, -50.0), 40.0);  // Beyond, the 1 or e^x does not count.
  const double shifted = clamped * kLog2E64 + kMagic;
  const double n = shifted - kMagic;
  const double r_hi = clamped - n * kLn2High64;
  const double r_lo = n * kLn2Low64;
  const double r = r_hi - r_lo;
  const double curve = exp_curve(r) * (r * r);
  const double rest = curve + ((r_hi - r) - r_lo) * (1.0 + (r + curve));
  const double scale = from_bits((bits_of(shifted) - bits_of(kMagic) + 1023U) << 52);
  const DoubleDouble sum = two_sum(scale - 1.0, scale * r);
  const double near = sum.hi + (sum.lo + scale * rest);
  return with_sign(x > 40.0 ? exp_of(x) : near, x);
}

/// log(u) + (x - (u - 1)) / u, u = 1 + x rounded.
[[gnu::always_inline]] inline double log1p_of(double x) {
  const double u = 1.0 + x;
  const bool usual = (u > 0.0) & (u < kInfF64);
  const double lost = usual ? (x - (u - 1.0)) / u : 0.0;
  return x == 0.0 ? x : log_of(u) + lost;
}

[[gnu::always_inline]] inline double exp2_of(double x) {
  const double clamped = at_most(at_least(x, -1100.0), 1030.0);  // Beyond underflow and overflow.
  const double shifted = clamped + kMagic;
  const double f = clamped - (shifted - kMagic);
  const DoubleDouble r = two_product(f, kLn2);
  const double curve = exp_curve(r.hi) * (r.hi * r.hi);
  const double mantissa = 1.0 + (r.hi + (curve + (r.lo + f * kLn2Rest) * (1.0 + (r.hi + curve))));
  const std::uint64_t exponent = bits_of(shifted) - bits_of(kMagic);
  const std::uint64_t half = ((exponent + 2048U) >> 1) - 1024U;
  return mantissa * from_bits((half + 1023U) << 52) * from_bits((exponent - half + 1023U) << 52);
}

/// e^a / 2: e^(a - ln 2), which overflows later than e^a.
[[gnu::always_inline]] inline double half_exp(double a) {
  const DoubleDouble less = two_sum(a, -kLn2High64);
  const ExpParts e = exp_parts(less.hi, less.lo - kLn2Low64);
  return e.mantissa * e.scale1 * e.scale2;
}

inline constexpr double kOneSided = 22.0;  ///< From here on e^-a does not count beside e^a.

[[gnu::always_inline]] inline double sinh_of(double x) {
  const double a = magnitude(x);
  const double e = expm1_of(at_most(a, kOneSided));
  const double near = 0.5 * (e + e / (e + 1.0));
  return with_sign(a > kOneSided ? half_exp(a) : near, x);
}

[[gnu::always_inline]] inline double cosh_of(double x) {
  const double a = magnitude(x);
  const double e = exp_of(at_most(a, kOneSided));
  return a > kOneSided ? half_exp(a) : 0.5 * e + 0.5 / e;
}

inline constexpr double kSquareCounts = 0x1p28;  ///< From here on sqrt(a^2 + 1) and sqrt(a^2 - 1) are a.

[[gnu::always_inline]] inline double asinh_of(double x) {
  const double a = magnitude(x);
  const double b = at_most(a, kSquareCounts);
  const double near = log1p_of(b + b * b / (1.0 + __builtin_sqrt(b * b + 1.0)));
  return with_sign(a > kSquareCounts ? log_of(a) + kLn2 : near, x);
}

[[gnu::always_inline]] inline double acosh_of(double x) {
  const double t = at_most(x, kSquareCounts) - 1.0;
  const double near = log1p_of(t + __builtin_sqrt(t * (t + 2.0)));
  const double value = x > kSquareCounts ? log_of(x) + kLn2 : near;
  return x < 1.0 ? kNanF64 : value;
}

/// log((1 + a) / (1 - a)) / 2
[[gnu::always_inline]] inline double atanh_of(double x) {
  const double a = magnitude(x);
  const double doubled = a + a;
  const double ratio = a < 0.5 ? doubled + doubled * a / (1.0 - a) : doubled / (1.0 - a);
  return with_sign(0.5 * log1p_of(ratio), x);
}

#define POPSR_THROUGH_DOUBLE(Name, function)                   \
  struct Name {                                                \
    template <class T>                                         \
    [[gnu::always_inline]] static T apply(T x) {               \
      return static_cast<T>(function(static_cast<double>(x))); \
    }                                                          \
  };
POPSR_THROUGH_DOUBLE(Expm1, expm1_of)
POPSR_THROUGH_DOUBLE(Log1p, log1p_of)
POPSR_THROUGH_DOUBLE(Exp2, exp2_of)
POPSR_THROUGH_DOUBLE(Sinh, sinh_of)
POPSR_THROUGH_DOUBLE(Cosh, cosh_of)
POPSR_THROUGH_DOUBLE(Asinh, asinh_of)
POPSR_THROUGH_DOUBLE(Acosh, acosh_of)
POPSR_THROUGH_DOUBLE(Atanh, atanh_of)
#undef POPSR_THROUGH_DOUBLE

}  // namespace

constexpr ElementwiseKernels kExpm1Kernels = kernels_of<Expm1, ElementwiseOp::kExpm1>();
constexpr ElementwiseKernels kLog1pKernels = kernels_of<Log1p, ElementwiseOp::kLog1p>();
constexpr ElementwiseKernels kExp2Kernels = kernels_of<Exp2, ElementwiseOp::kExp2>();
constexpr ElementwiseKernels kSinhKernels = kernels_of<Sinh, ElementwiseOp::kSinh>();
constexpr ElementwiseKernels kCoshKernels = kernels_of<Cosh, ElementwiseOp::kCosh>();
constexpr ElementwiseKernels kAsinhKernels = kernels_of<Asinh, ElementwiseOp::kAsinh>();
constexpr ElementwiseKernels kAcoshKernels = kernels_of<Acosh, ElementwiseOp::kAcosh>();
constexpr ElementwiseKernels kAtanhKernels = kernels_of<Atanh, ElementwiseOp::kAtanh>();

}  // namespace popsr::kernels
