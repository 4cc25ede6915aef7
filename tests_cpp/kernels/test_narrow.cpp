// Narrow floats: widening, nearest even, and the scalar specification of stochastic rounding.
#include <doctest/doctest.h>

#include <Eigen/Core>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "kernels/narrow_stochastically.h"
#include "popsr/kernels/float_env.h"
#include "popsr/kernels/loader.h"

using namespace popsr::kernels;

namespace {

template <class To, class From>
To bit_cast(From x) {
  return __builtin_bit_cast(To, x);
}

/// A 16-bit format: significand bits with the hidden one, least exponent of a normal, value of bits.
struct Format {
  bool bf16;
  int precision;
  int min_exponent;
  int max_exponent;
  double value(std::uint16_t bits) const {
    return bf16 ? static_cast<double>(static_cast<float>(bit_cast<Eigen::bfloat16>(bits)))
                : static_cast<double>(static_cast<float>(bit_cast<Eigen::half>(bits)));
  }
  bool is_nan(std::uint16_t bits) const { return std::isnan(value(bits)); }
  popsr::FloatFormat format() const { return bf16 ? popsr::FloatFormat::kBf16 : popsr::FloatFormat::kF16; }
  std::uint16_t infinity() const { return bf16 ? 0x7f80 : 0x7c00; }
};
const Format kFormats[] = {{true, 8, -126, 127}, {false, 11, -14, 15}};

/// |x| = significand * 2^exponent
struct Exact {
  __int128 significand;
  int exponent;
};
Exact exact_of(float x) {
  int exponent = 0;
  const double fraction = std::frexp(std::fabs(static_cast<double>(x)), &exponent);
  return {static_cast<__int128>(std::ldexp(fraction, 24)), exponent - 24};
}

/// |hi + lo| exactly, but for a lo of no consequence: far below hi and below 2^-72 of the least quantum it is
/// replaced by another of its sign. U / 2^64 has no bits there, so no comparison can see the difference.
Exact exact_sum(float hi, float lo, int least_quantum) {
  Exact a = exact_of(hi);
  Exact b = exact_of(lo);
  if (b.significand == 0) return a;
  if (a.significand == 0) return b;
  const int floor = std::max(a.exponent - 90, std::min(least_quantum - 72, a.exponent - 2));
  if (b.exponent < floor) {
    b.significand >>= std::min(floor - b.exponent, 100);
    b = {b.significand | 1, floor};
  }
  const int down = a.exponent - b.exponent;
  a = {a.significand << down, b.exponent};
  const bool opposite = std::signbit(hi) != std::signbit(lo);
  return {opposite ? a.significand - b.significand : a.significand + b.significand, a.exponent};
}

/// The specification: neighbours on the grid of the format, away iff u / 2^64 < p.
std::uint16_t stochastic(const Format& format, float hi, float lo, std::uint64_t u) {
  const std::uint16_t sign = std::signbit(hi) ? 0x8000 : 0;
  if (std::isnan(hi)) return static_cast<std::uint16_t>(sign | (format.infinity() + 1));
  if (std::isinf(hi)) return static_cast<std::uint16_t>(sign | format.infinity());
  const Exact s = exact_sum(hi, lo, format.min_exponent - format.precision + 1);
  if (s.significand == 0) return sign;
  int bits = 0;
  for (__int128 rest = s.significand; rest != 0; rest >>= 1) ++bits;
  const int top = s.exponent + bits - 1;  // 2^top <= |S| < 2^(top+1)
  if (top > format.max_exponent) return static_cast<std::uint16_t>(sign | format.infinity());
  const int quantum = (top < format.min_exponent ? format.min_exponent : top) - format.precision + 1;
  const int shift = quantum - s.exponent;  // S = significand / 2^shift quanta
  __int128 toward = 0;
  bool away = false;
  if (shift <= 0) {
    toward = s.significand << -shift;
  } else if (shift < 120) {
    toward = s.significand >> shift;
    __int128 rest = s.significand - (toward << shift);
    // u / 2^64 < rest / 2^shift, compared as u * 2^shift < rest * 2^64 on 64-bit halves.
    if (shift <= 62) {
      away = (static_cast<unsigned __int128>(u) << shift) < (static_cast<unsigned __int128>(rest) << 64);
    } else {
      const int extra =
          shift - 62;  // rest < 2^shift; u * 2^62 is exact, so compare with ceil(rest 2^64 / 2^extra).
      const unsigned __int128 left = static_cast<unsigned __int128>(u) << 62;
      unsigned __int128 wide = static_cast<unsigned __int128>(rest);
      const int up = 64 - extra;
      const bool sticky = up < 0 && (wide & ((static_cast<unsigned __int128>(1) << -up) - 1)) != 0;
      wide = up >= 0 ? wide << up : wide >> -up;
      away = left < wide || (left == wide && sticky);
    }
  } else {
    away = u == 0;  // 0 < p < 2^-64 in every test that comes here.
  }
  const double value = std::ldexp(static_cast<double>(toward + (away ? 1 : 0)), quantum);
  if (value >= std::ldexp(1.0, format.max_exponent + 1))
    return static_cast<std::uint16_t>(sign | format.infinity());
  const float rounded = static_cast<float>(value);
  return static_cast<std::uint16_t>(sign | (format.bf16 ? bit_cast<std::uint16_t>(Eigen::bfloat16(rounded))
                                                        : bit_cast<std::uint16_t>(Eigen::half(rounded))));
}

void check_stochastic(const std::vector<float>& hi, const std::vector<float>* lo, NoiseKey key,
                      std::uint64_t first) {
  std::vector<std::uint64_t> u(hi.size());
  kernel_table().uniform_bits(u.data(), static_cast<std::int64_t>(u.size()), key, first);
  for (const Format& format : kFormats) {
    std::vector<std::uint16_t> expect(hi.size());
    for (std::size_t i = 0; i < hi.size(); ++i) {
      expect[i] = stochastic(format, hi[i], lo != nullptr ? (*lo)[i] : 0.0F, u[i]);
    }
    for (const std::string& level : available_levels()) {
      std::vector<std::uint16_t> got(hi.size());
      narrow_stochastically(kernel_table(level), format.format(), got.data(), hi.data(),
                            lo != nullptr ? lo->data() : nullptr, static_cast<std::int64_t>(hi.size()), key,
                            first);
      for (std::size_t i = 0; i < hi.size(); ++i) {
        if (format.is_nan(expect[i]) && format.is_nan(got[i])) continue;
        INFO(level, " bf16=", format.bf16, " hi=", hi[i], " lo=", lo != nullptr ? (*lo)[i] : 0.0F,
             " u=", u[i]);
        REQUIRE(got[i] == expect[i]);
      }
    }
  }
}

/// Bits of every exponent, with long runs of zeros and ones among them.
float any_float(std::mt19937_64& random) {
  const std::uint64_t r = random();
  std::uint32_t bits = static_cast<std::uint32_t>(r);
  if ((r >> 32 & 3U) == 0) bits &= 0xffffffffU << (r >> 40 & 31U);
  if ((r >> 34 & 7U) == 0) bits |= 0x00000fffU;
  if ((r >> 48 & 1U) != 0)
    bits =
        (bits & 0x807fffffU) | ((102U + static_cast<std::uint32_t>(r >> 50) % 48U) << 23);  // float16's range
  return bit_cast<float>(bits);
}

/// A residual with |lo| <= ulp(hi) / 2.
float any_residual(std::mt19937_64& random, float hi) {
  const std::uint64_t r = random();
  if (!std::isfinite(hi) || hi == 0.0F || (r & 7U) == 0) return 0.0F;
  int exponent = 0;
  std::frexp(hi, &exponent);
  const int ulp = std::max(exponent - 24, -149);
  const float fraction = static_cast<float>(r >> 40) * 0x1p-25F;  // up to 1/2
  const float lo =
      static_cast<float>(std::ldexp(static_cast<double>(fraction), ulp - static_cast<int>(r >> 8 & 15U)));
  return (r >> 16 & 1U) != 0 ? -lo : lo;
}

}  // namespace

TEST_CASE("widening is exact for all 2^16 values") {
  std::vector<std::uint16_t> in(65536);
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<std::uint16_t>(i);
  std::vector<float> out(in.size());
  for (const std::string& level : available_levels()) {
    for (const Format& format : kFormats) {
      kernel_table(level).widen(format.format(), out.data(), in.data(), 65536);
      for (std::size_t i = 0; i < in.size(); ++i) {
        const double expect = format.value(in[i]);
        if (std::isnan(expect)) {
          REQUIRE(std::isnan(out[i]));
        } else {
          REQUIRE(bit_cast<std::uint32_t>(out[i]) == bit_cast<std::uint32_t>(static_cast<float>(expect)));
        }
      }
    }
  }
}

TEST_CASE("narrowing to nearest even equals Eigen's") {
  // Every float that is halfway or one float ulp beside it, around each of the 2^16 values, and random ones.
  std::vector<float> in;
  for (std::uint32_t i = 0; i < 65536; ++i) {
    for (const std::uint32_t low :
         {0U, 1U, 0x7fffU, 0x8000U, 0x8001U, 0xffffU, 0x0fffU, 0x1000U, 0x1001U, 0x3000U}) {
      in.push_back(bit_cast<float>((i << 16) | low));
    }
  }
  std::mt19937_64 random(1);
  for (int i = 0; i < 300000; ++i) in.push_back(any_float(random));
  std::vector<std::uint16_t> out(in.size());
  for (const std::string& level : available_levels()) {
    const KernelTable& table = kernel_table(level);
    for (const Format& format : kFormats) {
      table.narrow(format.format(), out.data(), in.data(), nullptr, static_cast<std::int64_t>(in.size()));
      for (std::size_t i = 0; i < in.size(); ++i) {
        if (std::isnan(in[i])) {
          REQUIRE(format.is_nan(out[i]));
          continue;
        }
        const std::uint16_t expect = format.bf16 ? bit_cast<std::uint16_t>(Eigen::bfloat16(in[i]))
                                                 : bit_cast<std::uint16_t>(Eigen::half(in[i]));
        INFO(level, " bf16=", format.bf16, " in=", in[i]);
        REQUIRE(out[i] == expect);
      }
    }
  }
}

TEST_CASE("narrowing hi + lo rounds the exact sum once") {
  std::mt19937_64 random(2);
  std::vector<float> hi, lo;
  for (int i = 0; i < 400000; ++i) {
    float x = any_float(random);
    if (i % 2 == 0)
      x = bit_cast<float>((bit_cast<std::uint32_t>(x) & 0xffff0000U) | 0x8000U);  // bfloat16 ties
    if (i % 8 == 1)
      x = bit_cast<float>((bit_cast<std::uint32_t>(x) & 0xffffe000U) | 0x1000U);  // float16 ties
    hi.push_back(x);
    lo.push_back(any_residual(random, x));
  }
  std::vector<std::uint16_t> out(hi.size());
  for (const std::string& level : available_levels()) {
    const KernelTable& table = kernel_table(level);
    for (const Format& format : kFormats) {
      table.narrow(format.format(), out.data(), hi.data(), lo.data(), static_cast<std::int64_t>(hi.size()));
      for (std::size_t i = 0; i < hi.size(); ++i) {
        if (std::isnan(hi[i])) continue;
        // u = 0 goes away if S is inexact, u = 2^63 iff p > 1/2; equality of p and 1/2 goes to the even
        // neighbour.
        const std::uint16_t low = stochastic(format, hi[i], lo[i], ~std::uint64_t{0});
        const std::uint16_t below = stochastic(format, hi[i], lo[i], (std::uint64_t{1} << 63) - 1);
        const std::uint16_t above = stochastic(format, hi[i], lo[i], std::uint64_t{1} << 63);
        const std::uint16_t tie = (below & 1U) == 0 ? below : above;
        INFO(level, " bf16=", format.bf16, " hi=", hi[i], " lo=", lo[i], " low=", low);
        REQUIRE(out[i] == (below == above ? below : tie));
      }
    }
  }
}

TEST_CASE("stochastic narrowing equals the scalar specification") {
  std::mt19937_64 random(3);
  for (const bool with_lo : {false, true}) {
    std::vector<float> hi, lo;
    for (int i = 0; i < 150000; ++i) {
      hi.push_back(any_float(random));
      lo.push_back(any_residual(random, hi.back()));
    }
    check_stochastic(hi, with_lo ? &lo : nullptr, {random(), random()}, with_lo ? 0 : 13);
  }
}

TEST_CASE("stochastic narrowing decides ties with all 64 bits") {
  // The low bits of hi are the element's own first word, so every element takes the exact path.
  const NoiseKey key = {11, 12};
  const std::uint64_t first = 1000003;
  std::vector<std::uint64_t> u(60000);
  kernel_table().uniform_bits(u.data(), static_cast<std::int64_t>(u.size()), key, first);
  std::mt19937_64 random(4);
  std::vector<float> hi, lo;
  for (std::size_t i = 0; i < u.size(); ++i) {
    const std::uint32_t word = static_cast<std::uint32_t>(u[i] >> 48);
    std::uint32_t bits = static_cast<std::uint32_t>(random());
    if (i % 3 == 0) bits = (bits & 0xffff0000U) | word;        // bfloat16: S just above
    if (i % 3 == 1) bits = ((bits & 0xffff0000U) | word) + 1;  // bfloat16: just above word + 1 - small
    if (i % 3 == 2)
      bits = (bits & 0x807fe000U) | (113U + static_cast<std::uint32_t>(random() % 29)) << 23 |
             word >> 3;  // float16
    const float x = bit_cast<float>(bits);
    hi.push_back(x);
    float rest = any_residual(random, x);
    if (i % 3 == 1 && std::signbit(rest) == std::signbit(x)) rest = -rest;
    if (std::isfinite(x) && i % 5 == 0 && x != 0.0F) {  // lo whose first bits are the rest of U
      int exponent = 0;
      std::frexp(x, &exponent);
      const double part = static_cast<double>(u[i] << 16 >> 41) * 0x1p-23;
      rest = static_cast<float>(std::ldexp(part, std::max(exponent - 24, -149)));
      if (std::fabs(rest) > std::ldexp(0.5, std::max(exponent - 24, -149))) rest = 0.0F;
      rest = std::copysign(rest, x);
    }
    lo.push_back(rest);
  }
  check_stochastic(hi, &lo, key, first);
}

TEST_CASE("stochastic narrowing at the edges") {
  const float infinity = std::numeric_limits<float>::infinity();
  std::vector<float> edges = {
      0.0F,     -0.0F,     infinity, -infinity, NAN,         65504.0F,  65519.0F,        65535.996F,
      65536.0F, 131072.0F, 0x1p-24F, 0x1p-25F,  0x1p-149F,   0x1p-133F, 0x1p-126F,       0x1p-14F,
      3.4e38F,  3.39e38F,  1e-45F,   6e-8F,     0x1.8p-100F, -0x1p-88F, -0x1.fffffep-15F};
  std::vector<float> hi, lo;
  std::mt19937_64 random(5);
  for (int repeat = 0; repeat < 400; ++repeat) {
    for (const float x : edges) {
      hi.push_back(x);
      lo.push_back(any_residual(random, x));
    }
  }
  check_stochastic(hi, nullptr, {1, 1}, 3);
  check_stochastic(hi, &lo, {1, 2}, 4);
}

TEST_CASE("FloatEnvironment restores and subnormals survive a flushing caller") {
#if defined(__SSE__)
  const unsigned before = _mm_getcsr();
  _mm_setcsr(before | 0x8040U);  // FTZ and DAZ
  {
    const FloatEnvironment environment;
    volatile float tiny = 0x1p-140F;
    const float half = tiny * 0.5F;
    CHECK(bit_cast<std::uint32_t>(half) == (1U << 8));
  }
  CHECK((_mm_getcsr() & 0x8040U) == 0x8040U);
  _mm_setcsr(before);
#endif
}
