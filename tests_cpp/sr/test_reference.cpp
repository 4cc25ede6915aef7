// The kernels against the scalar specification: TwoSum, the next representable value, a whole-number chance.
#include <doctest/doctest.h>

#include <random>
#include <string>
#include <vector>

#include "kernels/narrow_stochastically.h"
#include "popsr/kernels/loader.h"
#include "sr/cases.h"
#include "sr/reference.h"

using namespace popsr::kernels;
using popsr::FloatFormat;

TEST_CASE("sr: sums are the scalar specification's, bit for bit") {
  std::mt19937_64 random(20);
  for (const FloatFormat to : sr_cases::kFormats) {
    for (const FloatFormat from : sr_cases::kFormats) {
      sr_cases::Case test = sr_cases::random_case(random, SrOp::kAdd, to, from, 1200);
      if (random() % 2 == 0) sr_cases::keep_near_one(random, test);
      const std::vector<std::uint64_t> u = sr_cases::drawn(test);
      std::vector<std::uint64_t> expect;
      std::vector<bool> known;
      for (std::size_t i = 0; i < test.n(); ++i) {
        const double x = sr_oracle::decode(to, test.in[0][i]);
        const double y = sr_oracle::decode(from, test.in[1][i]);
        known.push_back(std::isfinite(x + y) || std::isinf(x) || std::isinf(y) || std::isnan(x + y));
        expect.push_back(sr_reference::add(to, x, y, u[i]));
      }
      for (const std::string& level : available_levels()) {
        const std::vector<std::uint64_t> got = sr_cases::run(kernel_table(level), test, false);
        for (std::size_t i = 0; i < test.n(); ++i) {
          INFO(level, " to=", static_cast<int>(to), " from=", static_cast<int>(from), " x=", test.in[0][i],
               " y=", test.in[1][i], " u=", u[i]);
          if (known[i]) REQUIRE(got[i] == expect[i]);
        }
      }
    }
  }
}

TEST_CASE("sr: casts and sums go through the simulator's narrowing of 16-bit formats") {
  std::mt19937_64 random(21);
  const KernelTable& table = kernel_table();
  for (const FloatFormat to : {FloatFormat::kBf16, FloatFormat::kF16}) {
    sr_cases::Case test = sr_cases::random_case(random, SrOp::kCast, to, FloatFormat::kF32, 3000);
    std::vector<float> hi;
    for (const std::uint64_t bits : test.in[0])
      hi.push_back(static_cast<float>(sr_oracle::decode(FloatFormat::kF32, bits)));
    std::vector<std::uint16_t> narrowed(test.n());
    narrow_stochastically(table, to, narrowed.data(), hi.data(), nullptr, static_cast<std::int64_t>(test.n()),
                          test.rounding.key, test.rounding.first);
    const std::vector<std::uint64_t> got = sr_cases::run(table, test, false);
    for (std::size_t i = 0; i < test.n(); ++i) {
      CAPTURE(hi[i]);
      if (!std::isnan(hi[i])) REQUIRE(got[i] == narrowed[i]);
    }
  }
}
