// The vector kernels beside the general way, on so many elements that all that is hard for them occurs:
// words equal to what is known of p, cancellation, extreme exponents.
#include <doctest/doctest.h>

#include <random>
#include <string>
#include <vector>

#include "popsr/kernels/loader.h"
#include "sr/cases.h"

using namespace popsr::kernels;
using popsr::FloatFormat;
using sr_cases::Case;

namespace {

constexpr std::size_t kElements = 1 << 15;

enum class Data { kOrdinary, kCancelling, kAnyBits };

struct Row {
  SrOp op;
  SrMode mode = SrMode::kProportional;
  bool scalar_weight = false;  ///< The third operand is the scalar.
};
constexpr Row kRows[] = {{SrOp::kAdd},
                         {SrOp::kSub},
                         {SrOp::kAdd, SrMode::kEqual},
                         {SrOp::kSub, SrMode::kEqual},
                         {SrOp::kMul},
                         {SrOp::kAxpy},
                         {SrOp::kFma},
                         {SrOp::kLerp},
                         {SrOp::kLerp, SrMode::kProportional, true},
                         {SrOp::kAddcmul},
                         {SrOp::kAddcdiv}};

std::uint64_t nearest_bits(double value, FloatFormat format) {
  SrRounding rounding;
  rounding.format = format;
  rounding.mode = SrMode::kNearest;
  rounding.saturate = true;
  const double in[3] = {value, 0.0, 0.0};
  return sr_oracle::round(sr_oracle::evaluate(SrOp::kCast, in, 1.0), rounding, 0);
}

/// The value of the addend at which the result is nearly 0, and the addend's operand.
struct Addend {
  int operand;
  double value;
};
Addend cancelling(SrOp op, const double* in, double s) {
  switch (op) {
    case SrOp::kAdd:
      return {0, -in[1]};
    case SrOp::kSub:
      return {0, in[1]};
    case SrOp::kAxpy:
      return {1, -s * in[0]};
    case SrOp::kFma:
      return {2, -in[0] * in[1]};
    case SrOp::kLerp:
      return {0, -in[2] * in[1] / (1 - in[2])};
    case SrOp::kAddcmul:
      return {0, -s * in[1] * in[2]};
    case SrOp::kAddcdiv:
      return {0, -s * in[1] / in[2]};
    default:
      return {0, in[0]};
  }
}

void cancel(std::mt19937_64& random, Case& test) {
  for (std::size_t i = 0; i < test.n(); ++i) {
    double in[3] = {0.0, 0.0, test.scalar};
    for (int operand = 0; operand < 3; ++operand) {
      if (!test.in[operand].empty())
        in[operand] = sr_oracle::decode(test.formats[operand], test.in[operand][i]);
    }
    const Addend addend = cancelling(test.op, in, test.scalar);
    if (random() % 2 == 0 || test.op == SrOp::kMul) continue;
    test.in[addend.operand][i] = nearest_bits(addend.value, test.formats[addend.operand]);
  }
}

Case case_of(std::mt19937_64& random, const Row& row, FloatFormat to, FloatFormat other, Data data) {
  Case test = sr_cases::random_case(random, row.op, to, other, kElements);
  test.rounding.mode = row.mode;
  test.scalar = random() % 2 == 0 ? -0.1 : 0.25;
  if (row.scalar_weight) test.in[2].clear();
  // s*x + y: the addend has the result's format.
  if (row.op == SrOp::kAxpy) {
    std::swap(test.in[0], test.in[1]);
    std::swap(test.formats[0], test.formats[1]);
  }
  if (data != Data::kAnyBits) sr_cases::keep_near_one(random, test);
  if (data == Data::kCancelling) cancel(random, test);
  return test;
}

}  // namespace

TEST_CASE("sr: the vector kernels give the bits of the general way") {
  const std::vector<std::string> levels = available_levels();
  std::mt19937_64 random(6);
  for (const Row& row : kRows) {
    for (const FloatFormat to : {FloatFormat::kF64, FloatFormat::kF32, FloatFormat::kF16, FloatFormat::kBf16,
                                 FloatFormat::kE4m3fn}) {
      for (const FloatFormat other : {to, FloatFormat::kF32, FloatFormat::kF64}) {
        for (const Data data : {Data::kOrdinary, Data::kCancelling, Data::kAnyBits}) {
          const Case test = case_of(random, row, to, other, data);
          const std::vector<std::uint64_t> expect = sr_cases::run(kernel_table(levels.front()), test, true);
          for (const std::string& level : levels) {
            const std::vector<std::uint64_t> got = sr_cases::run(kernel_table(level), test, false);
            for (std::size_t i = 0; i < expect.size(); ++i) {
              if (got[i] == expect[i]) continue;
              INFO(level, " op=", static_cast<int>(row.op), " to=", static_cast<int>(to),
                   " other=", static_cast<int>(other), " data=", static_cast<int>(data), " i=", i);
              REQUIRE(got[i] == expect[i]);
            }
          }
        }
      }
    }
  }
}

TEST_CASE("sr: estimates that are a unit off are noticed") {
  // A tenth bit of cancellation is the most that an estimate for float32 bears: its error is then near a
  // unit, and one word in 65,536 tells.
  std::mt19937_64 random(8);
  for (const SrOp op : {SrOp::kAddcmul, SrOp::kAddcdiv}) {
    Case test = sr_cases::random_case(random, op, FloatFormat::kF32, FloatFormat::kF32, 1 << 17);
    test.scalar = -0.1;
    sr_cases::keep_near_one(random, test);
    for (std::size_t i = 0; i < test.n(); ++i) {
      const double y = sr_oracle::decode(FloatFormat::kF32, test.in[1][i]);
      const double z = sr_oracle::decode(FloatFormat::kF32, test.in[2][i]);
      const double term = test.scalar * (op == SrOp::kAddcmul ? y * z : y / z);
      test.in[0][i] = nearest_bits(-term * (1 + 0x1.1p-10), FloatFormat::kF32);
    }
    for (int key = 0; key < 50; ++key) {
      test.rounding.key.lo = random();
      const std::vector<std::uint64_t> expect = sr_cases::run(kernel_table(), test, true);
      for (const std::string& level : available_levels()) {
        CAPTURE(level);
        CHECK(sr_cases::run(kernel_table(level), test, false) == expect);
      }
    }
  }
}

TEST_CASE("sr: extreme scalars are rounded as the general way does") {
  std::mt19937_64 random(7);
  for (const SrOp op : {SrOp::kAxpy, SrOp::kLerp, SrOp::kAddcmul, SrOp::kAddcdiv}) {
    for (const FloatFormat to : {FloatFormat::kF32, FloatFormat::kF16, FloatFormat::kBf16}) {
      for (const double scalar :
           {0.0, -0.0, 5e-324, 0x1p-1000, 0x1p-601, 0x1p-600, 0x1.8p600, 0x1p1000, -0x1.fffffffffffffp1023}) {
        Case test = sr_cases::random_case(random, op, to, FloatFormat::kF32, 700);
        if (op == SrOp::kAxpy) test.formats[0] = test.formats[1] = to, test.in[1] = test.in[0];
        if (op == SrOp::kLerp) test.in[2].clear();
        test.scalar = scalar;
        sr_cases::check_everywhere(test);
      }
    }
  }
}
