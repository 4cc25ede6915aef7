// Every operation, format, mode and instruction-set level against the oracle, bit for bit.
#include <doctest/doctest.h>

#include <random>
#include <string>
#include <vector>

#include "popsr/kernels/float_env.h"
#include "popsr/kernels/loader.h"
#include "sr/cases.h"

using namespace popsr::kernels;
using popsr::FloatFormat;
using sr_cases::Case;

namespace {

constexpr SrOp kOps[] = {SrOp::kCast, SrOp::kAdd,  SrOp::kSub,     SrOp::kMul,    SrOp::kAxpy,
                         SrOp::kFma,  SrOp::kLerp, SrOp::kAddcmul, SrOp::kAddcdiv};
constexpr double kScalars[] = {1.0,    -1.0, 0.3,  -0x1.8p-5, 0x1p-400, 0x1.5p300, 0x1.fffffffffffffp1023,
                               5e-324, 0.0,  -0.0, INFINITY,  NAN};

}  // namespace

TEST_CASE("sr: every op of every format and mode gives the oracle's bits") {
  std::mt19937_64 random(1);
  for (const SrOp op : kOps) {
    for (const FloatFormat to : sr_cases::kFormats) {
      for (const FloatFormat from : sr_cases::kFormats) {
        for (const SrRounding& mode : sr_cases::modes()) {
          Case test = sr_cases::random_case(random, op, to, from, 24);
          test.rounding.mode = mode.mode;
          test.rounding.bits = mode.bits;
          test.rounding.saturate = random() % 2 == 0;
          test.scalar = kScalars[random() % std::size(kScalars)];
          sr_cases::check_everywhere(test);
        }
      }
    }
  }
}

TEST_CASE("sr: proportional rounding of ordinary numbers gives the oracle's bits") {
  std::mt19937_64 random(2);
  for (const SrOp op : kOps) {
    for (const FloatFormat to : sr_cases::kFormats) {
      for (const double scalar : {0.25, -0.1, 1.0}) {
        Case test = sr_cases::random_case(random, op, to, to, 700);
        sr_cases::keep_near_one(random, test);
        test.scalar = scalar;
        sr_cases::check_everywhere(test);
      }
    }
  }
}

TEST_CASE("sr: numbers just below, at and above the chance decide as they must") {
  std::mt19937_64 random(3);
  for (const SrOp op : kOps) {
    for (const FloatFormat to : sr_cases::kFormats) {
      Case test = sr_cases::random_case(random, op, to, random() % 2 == 0 ? to : FloatFormat::kF32, 300);
      sr_cases::keep_near_one(random, test);
      test.scalar = 0.7;
      sr_cases::draw_at_the_chance(random, test);
      sr_cases::check_everywhere(test);
    }
  }
}

TEST_CASE("sr: exact sums stay whatever is drawn, huge gaps reach the neighbours only") {
  for (const FloatFormat format : sr_cases::kFormats) {
    for (const std::uint64_t u : {std::uint64_t{0}, std::uint64_t{1} << 63, ~std::uint64_t{0}}) {
      Case test = sr_cases::all_pairs_of_corners(SrOp::kAdd, format);
      test.uniform.assign(test.n(), u);
      sr_cases::check_everywhere(test);
    }
  }
}

TEST_CASE("sr: results do not depend on the caller's rounding mode or flush-to-zero") {
#if defined(__SSE__)
  std::mt19937_64 random(4);
  const unsigned saved = _mm_getcsr();
  for (const unsigned state : {0x1f80U | 0x8040U, 0x1f80U | 0x6000U, 0x1f80U | 0x2000U}) {
    Case test = sr_cases::random_case(random, SrOp::kAdd, FloatFormat::kF32, FloatFormat::kF32, 300);
    _mm_setcsr(state);
    std::vector<std::uint64_t> got;
    {
      const FloatEnvironment environment;
      got = sr_cases::run(kernel_table(), test, false);
    }
    CHECK(_mm_getcsr() == state);
    _mm_setcsr(saved);
    CHECK(got == sr_cases::expected(test));
  }
#endif
}

TEST_CASE("sr: a call may be split anywhere and may write over an operand") {
  std::mt19937_64 random(5);
  for (const FloatFormat format : sr_cases::kFormats) {
    Case test = sr_cases::random_case(random, SrOp::kAdd, format, format, 2000);
    const std::vector<std::uint64_t> whole = sr_cases::run(kernel_table(), test, false);
    for (const std::int64_t cut : {1, 7, 8, 513, 1999}) {
      CAPTURE(cut);
      CHECK(sr_cases::run_split(kernel_table(), test, cut) == whole);
    }
    CHECK(sr_cases::run_in_place(kernel_table(), test, 0) == whole);
    CHECK(sr_cases::run_in_place(kernel_table(), test, 1) == whole);
    for (const int shift : {0, 1, 3, 8}) CHECK(sr_cases::run_streamed(kernel_table(), test, shift) == whole);
  }
}
