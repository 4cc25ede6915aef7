// Sums over whole spaces of pairs. The complete sweeps and the 10^8 random pairs take minutes:
//   popsr_tests --no-skip -tc="sr slow:*"
#include <doctest/doctest.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "popsr/kernels/loader.h"
#include "sr/cases.h"
#include "sr/pairs.h"
#include "support/effort.h"

using namespace popsr::kernels;
using popsr::FloatFormat;

namespace {

constexpr std::int64_t kCodes = 65536;

/// One x with every y of 16 bits, drawn by position; how many results differ from the oracle's.
class Sweep {
 public:
  Sweep(const KernelTable& table, FloatFormat format)
      : table_(table),
        format_(format),
        f_(sr_oracle::format_of(format)),
        x_(kCodes),
        y_(kCodes),
        out_(kCodes),
        u_(kCodes) {
    for (std::size_t i = 0; i < kCodes; ++i) y_[i] = static_cast<std::uint16_t>(i);
    call_.op = SrOp::kAdd;
    call_.rounding.format = call_.formats[0] = call_.formats[1] = format;
    call_.rounding.key = {0x5eed, static_cast<std::uint64_t>(format)};
    call_.in[0] = x_.data();
    call_.in[1] = y_.data();
    call_.out = out_.data();
    call_.n = kCodes;
  }

  /// U as drawn.
  std::int64_t drawn(std::uint16_t x) {
    x_.assign(kCodes, x);
    call_.rounding.first = static_cast<std::uint64_t>(x) * kCodes;
    call_.rounding.uniform = nullptr;
    table_.uniform_bits(u_.data(), kCodes, call_.rounding.key, call_.rounding.first);
    table_.sr_apply(call_);
    return differences();
  }

  /// U just below, at and above the chance.
  std::int64_t at_the_chance(std::uint16_t x) {
    x_.assign(kCodes, x);
    for (std::size_t i = 0; i < kCodes; ++i) {
      const auto a = sr_pairs::term_of(f_, x);
      const auto b = sr_pairs::term_of(f_, y_[i]);
      const std::uint64_t p64 =
          a.special || b.special ? 0 : sr_pairs::bracket(sr_pairs::sum_of(a, b), f_).p64;
      u_[i] = p64 + (i + x) % 3 - 1;
    }
    call_.rounding.uniform = u_.data();
    table_.sr_apply(call_);
    return differences();
  }

 private:
  std::int64_t differences() const {
    std::int64_t count = 0;
    for (std::size_t i = 0; i < kCodes; ++i) {
      count += out_[i] != sr_pairs::add(f_, f_, f_, x_[i], y_[i], u_[i]) ? 1 : 0;
    }
    return count;
  }

  const KernelTable& table_;
  FloatFormat format_;
  sr_oracle::Format f_;
  std::vector<std::uint16_t> x_, y_, out_;
  std::vector<std::uint64_t> u_;
  SrCall call_;
};

/// Random pairs whose exponents are near each other or far apart.
template <class Bits>
std::int64_t random_differences(const KernelTable& table, FloatFormat format, std::int64_t pairs,
                                std::uint64_t seed) {
  constexpr std::size_t kChunk = 1 << 16;
  const sr_oracle::Format f = sr_oracle::format_of(format);
  const std::uint64_t hidden = std::uint64_t{1} << (f.precision - 1);
  const std::uint64_t sign = std::uint64_t{1} << (f.bits - 1);
  std::mt19937_64 random(seed);
  std::vector<Bits> x(kChunk), y(kChunk), out(kChunk);
  std::vector<std::uint64_t> u(kChunk);
  SrCall call;
  call.op = SrOp::kAdd;
  call.rounding.format = call.formats[0] = call.formats[1] = format;
  call.rounding.key = {seed, 1};
  call.in[0] = x.data();
  call.in[1] = y.data();
  call.out = out.data();
  call.n = kChunk;
  std::int64_t count = 0;
  for (std::int64_t done = 0; done < pairs; done += kChunk) {
    for (std::size_t i = 0; i < kChunk; ++i) {
      const std::uint64_t a = random();
      const std::uint64_t b = random();
      x[i] = static_cast<Bits>(a & (sign | (sign - 1)));
      const auto gap = static_cast<std::int64_t>(b % 160) - 80;
      const std::int64_t fields = static_cast<std::int64_t>(f.max_code / hidden) + 1;
      const std::int64_t field =
          std::clamp<std::int64_t>(static_cast<std::int64_t>((x[i] & (sign - 1)) / hidden) + gap, 0, fields);
      y[i] = static_cast<Bits>((b & sign) | (static_cast<std::uint64_t>(field) * hidden) |
                               ((b >> 8) & (hidden - 1)));
    }
    call.rounding.first = static_cast<std::uint64_t>(done);
    table.uniform_bits(u.data(), kChunk, call.rounding.key, call.rounding.first);
    table.sr_apply(call);
    for (std::size_t i = 0; i < kChunk; ++i)
      count += out[i] != sr_pairs::add(f, f, f, x[i], y[i], u[i]) ? 1 : 0;
  }
  return count;
}

}  // namespace

TEST_CASE("sr: the oracle of pairs agrees with the oracle of everything") {
  std::mt19937_64 random(6);
  for (const FloatFormat format : sr_cases::kFormats) {
    const sr_oracle::Format f = sr_oracle::format_of(format);
    for (int i = 0; i < 5000; ++i) {
      const std::uint64_t x = sr_cases::random_bits(random, format);
      const std::uint64_t y = sr_cases::random_bits(random, format);
      const std::uint64_t u = random();
      SrRounding rounding;
      rounding.format = format;
      const double in[3] = {sr_oracle::decode(format, x), sr_oracle::decode(format, y), 0.0};
      INFO(static_cast<int>(format), " x=", x, " y=", y, " u=", u);
      REQUIRE(sr_pairs::add(f, f, f, x, y, u) == sr_oracle::result(SrOp::kAdd, in, 1.0, rounding, u));
    }
  }
}

TEST_CASE("sr: all pairs of every 8-bit format, every mode and overflow") {
  for (const FloatFormat format :
       {FloatFormat::kE4m3fn, FloatFormat::kE5m2, FloatFormat::kE4m3fnuz, FloatFormat::kE5m2fnuz}) {
    sr_cases::Case test;
    test.rounding.format = test.formats[0] = test.formats[1] = format;
    test.rounding.key = {7, 7};
    const std::uint64_t step = kCodes / popsr::test::rounds(kCodes) | 1;  // odd: every y is met
    for (std::uint64_t i = 0; i < kCodes; i += step) {
      test.in[0].push_back(i / 256);
      test.in[1].push_back(i % 256);
    }
    for (const SrRounding& mode : sr_cases::modes()) {
      for (const bool saturate : {false, true}) {
        test.rounding.mode = mode.mode;
        test.rounding.bits = mode.bits;
        test.rounding.saturate = saturate;
        const std::vector<std::uint64_t> expect = sr_cases::expected(test);
        CHECK(sr_cases::run(kernel_table(), test, false) == expect);
      }
    }
    std::mt19937_64 random(8);
    test.rounding = {};
    test.rounding.format = format;
    sr_cases::draw_at_the_chance(random, test);
    sr_cases::check_everywhere(test);
  }
}

TEST_CASE("sr: bf16 and fp16, every y beside a stratified choice of x") {
  for (const FloatFormat format : {FloatFormat::kBf16, FloatFormat::kF16}) {
    for (const std::string& level : available_levels()) {
      Sweep sweep(kernel_table(level), format);
      const int stride = level == "v2" ? 8191 : 1021;
      for (int x = 0; x < kCodes; x += stride) {
        INFO(level, " format=", static_cast<int>(format), " x=", x);
        REQUIRE(sweep.drawn(static_cast<std::uint16_t>(x)) == 0);
        REQUIRE(sweep.at_the_chance(static_cast<std::uint16_t>(x)) == 0);
      }
    }
  }
}

TEST_CASE("sr: random pairs of fp32 and fp64") {
  for (const std::string& level : available_levels()) {
    CAPTURE(level);
    CHECK(random_differences<std::uint32_t>(kernel_table(level), FloatFormat::kF32, 1 << 19, 9) == 0);
    CHECK(random_differences<std::uint64_t>(kernel_table(level), FloatFormat::kF64, 1 << 19, 10) == 0);
  }
}

TEST_CASE("sr slow: all 2^32 pairs of bf16 and of fp16" * doctest::skip()) {
  for (const FloatFormat format : {FloatFormat::kBf16, FloatFormat::kF16}) {
    Sweep sweep(kernel_table(), format);
    std::int64_t differences = 0;
    for (int x = 0; x < kCodes; ++x) differences += sweep.drawn(static_cast<std::uint16_t>(x));
    CAPTURE(static_cast<int>(format));
    CHECK(differences == 0);
  }
}

TEST_CASE("sr slow: 10^8 random pairs of fp32 and of fp64" * doctest::skip()) {
  CHECK(random_differences<std::uint32_t>(kernel_table(), FloatFormat::kF32, 100'000'000, 11) == 0);
  CHECK(random_differences<std::uint64_t>(kernel_table(), FloatFormat::kF64, 100'000'000, 12) == 0);
}
