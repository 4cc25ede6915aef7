// sin, cos and tan of arguments of any size. Worst errors in ulp: sin and cos float 0.501 (bound 0.55),
// double 0.77 (bound 1); tan float 0.501 (bound 0.55), double 2.13 (bound 2.5).
#include "popsr/kernels/level/math/elementwise-inl.h"
#include "popsr/kernels/level/math/functions/trigonometric-inl.h"

namespace popsr::kernels {
namespace {

__extension__ typedef unsigned __int128 Wide128;

/// Bits of 2/pi = 0.6366..., most significant first, behind one word of the zeros before the point.
constexpr std::uint64_t kTwoOverPi[] = {
    0x0000000000000000ULL, 0xa2f9836e4e441529ULL, 0xfc2757d1f534ddc0ULL, 0xdb6295993c439041ULL,
    0xfe5163abdebbc561ULL, 0xb7246e3a424dd2e0ULL, 0x06492eea09d1921cULL, 0xfe1deb1cb129a73eULL,
    0xe88235f52ebb4484ULL, 0xe99c7026b45f7e41ULL, 0x3991d639835339f4ULL, 0x9c845f8bbdf9283bULL,
    0x1ff897ffde05980fULL, 0xef2f118b5a0a6d1fULL, 0x6d367ecf27cb09b7ULL, 0x4f463f669e5fea2dULL,
    0x7527bac7ebe5f17bULL, 0x3d0739f78a5292eaULL, 0x6bfb5fb11f8d5d08ULL, 0x56033046fc7b6babULL};

/// 64 bits from bit `position` on.
inline std::uint64_t window(int position) {
  const int word = position / 64;
  const int shift = position % 64;
  const std::uint64_t high = kTwoOverPi[word] << shift;
  return shift == 0 ? high : high | (kTwoOverPi[word + 1] >> (64 - shift));
}

/// fraction = f 2^-192 with |f| <= 2^191, times pi/2; f in two's complement, most significant word first.
inline DoubleDouble scaled_fraction(std::uint64_t f2, std::uint64_t f1, std::uint64_t f0) {
  const bool negative = (f2 >> 63) != 0;
  if (negative) {
    const Wide128 low = ~((static_cast<Wide128>(f1) << 64) | f0) + 1;
    f2 = ~f2 + (low == 0 ? 1U : 0U);
    f1 = static_cast<std::uint64_t>(low >> 64);
    f0 = static_cast<std::uint64_t>(low);
  }
  int zeros = 0;
  while (f2 == 0 && zeros < 192) {
    f2 = f1;
    f1 = f0;
    f0 = 0;
    zeros += 64;
  }
  if (f2 == 0) return {0.0, 0.0};
  const int shift = __builtin_clzll(f2);
  if (shift != 0) {
    f2 = (f2 << shift) | (f1 >> (64 - shift));
    f1 = (f1 << shift) | (f0 >> (64 - shift));
  }
  zeros += shift;
  // The top 53 bits and the 64 below them, each exact or cut.
  const double scale = from_bits(static_cast<std::uint64_t>(1023 - zeros) << 52);
  const double hi = static_cast<double>(static_cast<std::int64_t>(f2 >> 11)) * 0x1p-53;
  const std::uint64_t rest = (f2 << 53) | (f1 >> 11);
  const double lo = static_cast<double>(static_cast<std::int64_t>(rest >> 11)) * 0x1p-106;
  const double sign = negative ? -scale : scale;
  return multiply({hi * sign, lo * sign}, {0x1.921fb54442d18p+0, 0x1.1a62633145c07p-54});
}

/// Finite |x| >= 2^20. x = m 2^e; of x 2/pi = sum of m 2^(e-j) over the set bits j of 2/pi, bits with j < e -
/// 1 give multiples of 4. The 192 bits from there on, times m, modulo 2^192, are x 2/pi mod 4 with an error
/// of 2^-137.
inline Reduced reduce_far(double x) {
  const std::uint64_t u = bits_of(magnitude(x));
  const std::uint64_t m = (u & 0x000fffffffffffffULL) | 0x0010000000000000ULL;
  const int e = static_cast<int>(u >> 52) - 1075;
  const int position = e - 2 + 64;
  const std::uint64_t w[] = {window(position), window(position + 64), window(position + 128)};
  const Wide128 low = static_cast<Wide128>(m) * w[2];
  const Wide128 middle = static_cast<Wide128>(m) * w[1] + (low >> 64);
  const std::uint64_t p0 = static_cast<std::uint64_t>(low);
  const std::uint64_t p1 = static_cast<std::uint64_t>(middle);
  const std::uint64_t p2 = m * w[0] + static_cast<std::uint64_t>(middle >> 64);
  // Two bits of quadrant, then the fraction; above 1/2 it is taken from the next quadrant.
  const std::uint64_t f2 = (p2 << 2) | (p1 >> 62);
  const std::uint64_t f1 = (p1 << 2) | (p0 >> 62);
  const std::uint64_t quadrant = (p2 >> 62) + (f2 >> 63);
  const DoubleDouble r = scaled_fraction(f2, f1, p0 << 2);
  return bits_of(x) >> 63 != 0 ? Reduced{-r.hi, -r.lo, 0 - quadrant} : Reduced{r.hi, r.lo, quadrant};
}

/// Any |x| >= 2^20, infinities and NaN.
template <class F, class T>
inline T trig_far(T x) {
  if (!(magnitude(x) < static_cast<T>(kInfF64))) return static_cast<T>(kNanF64);
  return static_cast<T>(F::of(reduce_far(static_cast<double>(x))));
}

/// Tile by tile: the usual arguments in a loop that vectorises, then the others if there are any. F::near is
/// the function below 2^20, F::of the function of a reduced argument.
template <class F, class T>
void trig_loop(void* hi, void*, const void* const* in, std::int64_t n, const double*) {
  constexpr std::int64_t kPiece = 64;
  const T* x = static_cast<const T*>(in[0]);
  T* out = static_cast<T*>(hi);
  for (std::int64_t begin = 0; begin < n; begin += kPiece) {
    const std::int64_t count = n - begin < kPiece ? n - begin : kPiece;
    T piece[kPiece];
    unsigned far = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      const T value = x[begin + i];
      piece[i] = F::near(value);
      far |= magnitude(value) < static_cast<T>(kTrigNear) ? 0U : 1U;
    }
    for (std::int64_t i = 0; far != 0 && i < count; ++i) {
      const T value = x[begin + i];
      if (!(magnitude(value) < static_cast<T>(kTrigNear))) piece[i] = trig_far<F>(value);
    }
    __builtin_memcpy(out + begin, piece, static_cast<std::size_t>(count) * sizeof(T));
  }
}

template <int kQuarter>
struct SineAt {
  static double of(const Reduced& r) { return trig_of<kQuarter>(r); }
  template <class T>
  [[gnu::always_inline]] static T near(T x) {
    return trig_near<kQuarter>(x);
  }
};

struct Tangent {
  [[gnu::always_inline]] static double of(const Reduced& r) {
    const double sine = sin_kernel(r.hi, r.lo), cosine = cos_kernel(r.hi, r.lo);
    return turned(sine, cosine, r.quadrant) / turned(sine, cosine, r.quadrant + 1);
  }
  template <class T>
  [[gnu::always_inline]] static T near(T x) {
    const T result = static_cast<T>(of(reduce_near(static_cast<double>(x))));
    return x == 0 ? x : result;
  }
};

/// Loop like the one above; the rest goes through float.
template <int kQuarter>
void trig_loop_bf16(void* hi, const void* const* in, std::int64_t n) {
  constexpr std::int64_t kPiece = 256;
  const std::uint16_t* x = static_cast<const std::uint16_t*>(in[0]);
  std::uint16_t* out = static_cast<std::uint16_t*>(hi);
  for (std::int64_t begin = 0; begin < n; begin += kPiece) {
    const std::int64_t count = n - begin < kPiece ? n - begin : kPiece;
    std::uint16_t piece[kPiece];
    std::uint32_t largest = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      const float value = bf16_to_float(x[begin + i]);
      const std::uint32_t size = bits_of(magnitude(value));
      largest = size > largest ? size : largest;
      piece[i] = to_bf16(trig_near_bf16<kQuarter>(value));
    }
    for (std::int64_t i = 0; largest >= bits_of(kTrigNearBf16) && i < count; ++i) {
      const float value = bf16_to_float(x[begin + i]);
      if (magnitude(value) < kTrigNearBf16) continue;
      const bool near = magnitude(value) < static_cast<float>(kTrigNear);
      piece[i] = to_bf16(near ? trig_near<kQuarter>(value) : trig_far<SineAt<kQuarter>>(value));
    }
    __builtin_memcpy(out + begin, piece, static_cast<std::size_t>(count) * sizeof(piece[0]));
  }
}

template <int kQuarter>
struct Trigonometric {
  template <class T>
  static void run(void* hi, void* lo, const void* const* in, std::int64_t n, const double* p) {
    trig_loop<SineAt<kQuarter>, T>(hi, lo, in, n, p);
  }
  static void run_bf16(void* hi, void*, const void* const* in, std::int64_t n, const double*) {
    trig_loop_bf16<kQuarter>(hi, in, n);
  }
};
using Sin = Trigonometric<0>;
using Cos = Trigonometric<1>;
struct Tan {
  template <class T>
  static void run(void* hi, void* lo, const void* const* in, std::int64_t n, const double* p) {
    trig_loop<Tangent, T>(hi, lo, in, n, p);
  }
};

}  // namespace

constexpr ElementwiseKernels kSinKernels = kernels_of<Sin, ElementwiseOp::kSin>();
constexpr ElementwiseKernels kCosKernels = kernels_of<Cos, ElementwiseOp::kCos>();
constexpr ElementwiseKernels kTanKernels = kernels_of<Tan, ElementwiseOp::kTan>();

}  // namespace popsr::kernels
