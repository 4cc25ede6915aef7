// float8: every code is widened to what the formats define, and narrowing is to the nearest code, ties to
// even, at every instruction-set level.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "popsr/kernels/float_env.h"
#include "popsr/kernels/loader.h"

using namespace popsr::kernels;

namespace {

/// A format by its definition.
struct Format {
  popsr::FloatFormat format;
  int mantissa_bits;
  int bias;
  int max_code;  ///< Code of the greatest number.
  int infinity;  ///< Code of infinity and of numbers that are too large.
  int nan;
  bool negative_zero;

  /// The magnitude of a code up to one beyond the greatest.
  double value(int code) const {
    const int steps = 1 << mantissa_bits;
    const int exponent = code / steps;
    const double significand = (exponent == 0 ? 0.0 : 1.0) + (code % steps) / static_cast<double>(steps);
    return std::ldexp(significand, (exponent == 0 ? 1 : exponent) - bias);
  }
  double midpoint(int code) const { return (value(code) + value(code + 1)) / 2; }
  /// The bits of the negative number.
  int negative(int code) const { return !negative_zero && (code == 0 || code == nan) ? code : code | 0x80; }
};
const Format kFormats[] = {{popsr::FloatFormat::kE4m3fn, 3, 7, 0x7e, 0x7f, 0x7f, true},
                           {popsr::FloatFormat::kE5m2, 2, 15, 0x7b, 0x7c, 0x7e, true},
                           {popsr::FloatFormat::kE4m3fnuz, 3, 8, 0x7f, 0x80, 0x80, false},
                           {popsr::FloatFormat::kE5m2fnuz, 2, 16, 0x7f, 0x80, 0x80, false}};
constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Expected {
  float hi, lo;
  int code;
};

/// Around every value and midpoint, with remainders too small for hi; both signs.
std::vector<Expected> expectations(const Format& format) {
  std::vector<Expected> all = {{0.0F, 0.0F, 0},
                               {kInfinity, 0.0F, format.infinity},
                               {std::numeric_limits<float>::quiet_NaN(), 0.0F, format.nan},
                               {std::numeric_limits<float>::max(), 0.0F, format.infinity},
                               {std::numeric_limits<float>::denorm_min(), 0.0F, 0},
                               {1e-38F, 1e-45F, 0}};
  const auto code_of = [&](int code) { return code > format.max_code ? format.infinity : code; };
  for (int code = 0; code <= format.max_code; ++code) {
    const auto middle = static_cast<float>(format.midpoint(code));
    all.push_back({static_cast<float>(format.value(code)), 0.0F, code});
    all.push_back({middle, 0.0F, code_of(code + code % 2)});
    all.push_back({std::nextafter(middle, 0.0F), 0.0F, code});
    all.push_back({std::nextafter(middle, kInfinity), 0.0F, code_of(code + 1)});
    all.push_back({middle, -1e-30F, code});
    all.push_back({middle, 1e-30F, code_of(code + 1)});
  }
  const std::size_t positive = all.size();
  for (std::size_t i = 0; i < positive; ++i) {
    all.push_back({-all[i].hi, -all[i].lo, format.negative(all[i].code)});
  }
  return all;
}

}  // namespace

TEST_CASE("float8 is widened to what its code stands for") {
  std::vector<std::uint8_t> codes(256);
  for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::uint8_t>(i);
  for (const std::string& level : available_levels()) {
    for (const Format& format : kFormats) {
      std::vector<float> wide(codes.size());
      kernel_table(level).widen(format.format, wide.data(), codes.data(), 256);
      for (int i = 0; i < 256; ++i) {
        const double got = static_cast<double>(wide[static_cast<std::size_t>(i)]);
        const int code = i & 0x7f;
        const bool negative = i >= 0x80;
        const double magnitude =
            code == format.infinity ? static_cast<double>(kInfinity) : format.value(code);
        CAPTURE(level);
        CAPTURE(i);
        if ((code > format.max_code && code != format.infinity) || code == format.nan || i == format.nan) {
          CHECK(std::isnan(got));
        } else {
          CHECK(got == (negative ? -magnitude : magnitude));
          CHECK(std::signbit(got) == negative);
        }
      }
    }
  }
}

TEST_CASE("numbers are narrowed to the nearest float8, ties to even, in any part of a loop") {
  const FloatEnvironment environment;
  for (const std::string& level : available_levels()) {
    for (const Format& format : kFormats) {
      const std::vector<Expected> all = expectations(format);
      std::vector<float> hi, lo;
      for (const Expected& each : all) hi.push_back(each.hi), lo.push_back(each.lo);
      for (const std::size_t skipped : {0, 1, 7}) {
        const auto n = static_cast<std::int64_t>(all.size() - skipped);
        std::vector<std::uint8_t> with_rest(all.size()), without(all.size());
        kernel_table(level).narrow(format.format, with_rest.data(), hi.data() + skipped, lo.data() + skipped,
                                   n);
        kernel_table(level).narrow(format.format, without.data(), hi.data() + skipped, nullptr, n);
        for (std::size_t i = skipped; i < all.size(); ++i) {
          CAPTURE(level);
          CAPTURE(all[i].hi);
          CAPTURE(all[i].lo);
          CHECK(with_rest[i - skipped] == all[i].code);
          if (all[i].lo == 0.0F) CHECK(without[i - skipped] == all[i].code);
        }
      }
    }
  }
}

TEST_CASE("the first level's table is every level's for any float") {
  constexpr std::int64_t kCount = 1 << 16;
  std::vector<float> x(kCount), rest(kCount);
  std::uint32_t state = 1;
  for (std::size_t i = 0; i < x.size(); ++i) {
    state = state * 1664525U + 1013904223U;
    x[i] = __builtin_bit_cast(float, state);
    rest[i] = std::isfinite(x[i]) ? std::ldexp(x[i], -30) * (i % 3 == 0 ? -1.0F : 1.0F) : 0.0F;
  }
  for (const Format& format : kFormats) {
    std::vector<std::uint8_t> first(kCount), other(kCount);
    kernel_table(available_levels().front())
        .narrow(format.format, first.data(), x.data(), rest.data(), kCount);
    for (const std::string& level : available_levels()) {
      kernel_table(level).narrow(format.format, other.data(), x.data(), rest.data(), kCount);
      CHECK_MESSAGE(other == first, level);
    }
  }
}
