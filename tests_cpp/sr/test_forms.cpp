// The kernels beside sr_apply: the value form, AdamW, running sums. Same bits at every level, and the
// oracle's.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "popsr/kernels/loader.h"
#include "popsr/kernels/noise.h"
#include "sr/cases.h"

using namespace popsr::kernels;
using popsr::FloatFormat;

namespace {

// Value form

std::vector<std::uint64_t> value_bits(const KernelTable& table, const sr_cases::Buffers& buffers,
                                      FloatFormat format, NoiseKey key) {
  SrValueAdd call;
  call.x = buffers.call.in[0];
  call.y = buffers.call.in[1];
  call.format = format;
  call.key = key;
  call.n = buffers.call.n;
  std::vector<std::uint64_t> u(static_cast<std::size_t>(call.n));
  table.sr_value_bits(u.data(), call);
  return u;
}

std::vector<std::uint64_t> value_add(const KernelTable& table, sr_cases::Buffers& buffers, FloatFormat format,
                                     NoiseKey key, bool biased, bool stream) {
  SrValueAdd call;
  call.x = buffers.call.in[0];
  call.y = buffers.call.in[1];
  call.out = buffers.call.out;
  call.format = format;
  call.key = key;
  call.biased = biased;
  call.stream = stream;
  call.n = buffers.call.n;
  table.sr_value_add(call);
  return sr_cases::unpacked(buffers.out.data(), static_cast<std::size_t>(call.n), format);
}

/// The greatest distance from 1/2 of the chance that a bit of U flips with a bit of an operand.
double worst_avalanche(FloatFormat format, std::mt19937_64& random) {
  constexpr std::size_t kPairs = 20000;
  const int bits = sr_oracle::format_of(format).bits;
  sr_cases::Case test = sr_cases::random_case(random, SrOp::kAdd, format, format, kPairs);
  for (auto& operand : {&test.in[0], &test.in[1]}) {
    for (std::uint64_t& x : *operand) x = random() >> (64 - bits);
  }
  const NoiseKey key = {random(), random()};
  const std::vector<std::uint64_t> before = value_bits(kernel_table(), sr_cases::Buffers(test), format, key);
  double worst = 0.0;
  for (int bit = 0; bit < bits; ++bit) {
    sr_cases::Case changed = test;
    for (std::uint64_t& x : changed.in[0]) x ^= std::uint64_t{1} << bit;
    const std::vector<std::uint64_t> after =
        value_bits(kernel_table(), sr_cases::Buffers(changed), format, key);
    std::vector<int> flips(64);
    for (std::size_t i = 0; i < kPairs; ++i) {
      for (int out = 0; out < 64; ++out)
        flips[static_cast<std::size_t>(out)] += static_cast<int>(((before[i] ^ after[i]) >> out) & 1);
    }
    for (const int count : flips)
      worst = std::max(worst, std::fabs(count / static_cast<double>(kPairs) - 0.5));
  }
  return worst;
}

// AdamW

/// AdamW as KernelTable specifies it, one element at a time.
template <class T>
struct ReferenceStep {
  T m, v, update;

  ReferenceStep(const SrAdamw& s, double w, double g, double old_m, double old_v) {
    const auto as = [](double x) { return static_cast<T>(x); };
    m = as(s.beta1) * as(old_m) + as(s.one_less_beta1) * as(g);
    v = as(s.beta2) * as(old_v) + (as(s.one_less_beta2) * as(g)) * as(g);
    update = as(s.decay) * as(w) + (as(s.step_size) * m) / (std::sqrt(v) * as(s.root_scale) + as(s.eps));
  }
};

std::uint64_t rounded(SrOp op, double x, double y, FloatFormat format, std::uint64_t u) {
  SrRounding rounding;
  rounding.format = format;
  const double in[3] = {x, y, 0.0};
  return sr_oracle::result(op, in, 1.0, rounding, u);
}

SrAdamw sample_step() {
  SrAdamw step;
  step.beta1 = 0.9;
  step.one_less_beta1 = 1 - 0.9;
  step.beta2 = 0.999;
  step.one_less_beta2 = 1 - 0.999;
  step.decay = -1e-5;
  step.step_size = -1e-3 / 0.271;
  step.root_scale = 18.3;
  step.eps = 1e-8;
  step.keys[0] = {1, 2};
  step.keys[1] = {3, 4};
  step.keys[2] = {5, 6};
  step.first = 12345;
  return step;
}

std::vector<std::uint64_t> sample(FloatFormat format, std::size_t n, bool positive, std::mt19937_64& random) {
  std::vector<std::uint64_t> bits;
  for (std::size_t i = 0; i < n; ++i) {
    const double x = std::ldexp(static_cast<double>(random() % 1000) - 500.0, -9);
    bits.push_back(rounded(SrOp::kCast, positive ? std::fabs(x) : x, 0, format, 1));
  }
  return bits;
}

template <class T>
void check_adamw(const FloatFormat (&formats)[4], std::mt19937_64& random) {
  constexpr std::size_t kElements = 1500;
  std::vector<std::uint64_t> in[4];
  for (int a = 0; a < 4; ++a) in[a] = sample(formats[a], kElements, a == 3, random);
  SrAdamw step = sample_step();
  std::vector<std::uint64_t> u[3];
  for (int k = 0; k < 3; ++k) {
    u[k].resize(kElements);
    kernel_table().uniform_bits(u[k].data(), kElements, step.keys[k], step.first);
  }
  for (const std::string& level : available_levels()) {
    std::vector<unsigned char> bytes[4];
    for (int a = 0; a < 4; ++a) {
      bytes[a] = sr_cases::packed(in[a], formats[a]);
      step.formats[a] = formats[a];
    }
    step.w = bytes[0].data();
    step.g = bytes[1].data();
    step.m = bytes[2].data();
    step.v = bytes[3].data();
    step.n = kElements;
    kernel_table(level).sr_adamw(step);
    const auto w = sr_cases::unpacked(bytes[0].data(), kElements, formats[0]);
    const auto m = sr_cases::unpacked(bytes[2].data(), kElements, formats[2]);
    const auto v = sr_cases::unpacked(bytes[3].data(), kElements, formats[3]);
    for (std::size_t i = 0; i < kElements; ++i) {
      double x[4];
      for (int a = 0; a < 4; ++a) x[a] = sr_oracle::decode(formats[a], in[a][i]);
      const ReferenceStep<T> expect(step, x[0], x[1], x[2], x[3]);
      INFO(level, " i=", i, " w=", x[0], " g=", x[1], " m=", x[2], " v=", x[3]);
      REQUIRE(w[i] == rounded(SrOp::kAdd, x[0], static_cast<double>(expect.update), formats[0], u[0][i]));
      REQUIRE(m[i] == rounded(SrOp::kCast, static_cast<double>(expect.m), 0, formats[2], u[1][i]));
      REQUIRE(v[i] == rounded(SrOp::kCast, static_cast<double>(expect.v), 0, formats[3], u[2][i]));
    }
  }
}

}  // namespace

TEST_CASE("sr: the value form rounds by the bits of the pair's hash, at every level") {
  std::mt19937_64 random(30);
  const NoiseKey key = {11, 13};
  for (const FloatFormat format : sr_cases::kFormats) {
    sr_cases::Case test = sr_cases::random_case(random, SrOp::kAdd, format, format, 4000);
    sr_cases::keep_near_one(random, test);
    for (int i = 0; i < 500; ++i)
      test.in[0][static_cast<std::size_t>(i)] = sr_cases::random_bits(random, format);
    sr_cases::Buffers buffers(test);
    test.uniform = value_bits(kernel_table(), buffers, format, key);
    for (const bool biased : {true, false}) {
      test.rounding.mode = biased ? SrMode::kProportional : SrMode::kEqual;
      const std::vector<std::uint64_t> expect = sr_cases::expected(test);
      for (const std::string& level : available_levels()) {
        CAPTURE(level);
        CHECK(value_bits(kernel_table(level), buffers, format, key) == test.uniform);
        for (const bool stream : {false, true}) {
          CHECK(value_add(kernel_table(level), buffers, format, key, biased, stream) == expect);
        }
      }
    }
  }
}

TEST_CASE("sr: the hash of a pair is symmetric, depends on the key, and avalanches") {
  std::mt19937_64 random(31);
  for (const FloatFormat format :
       {FloatFormat::kF64, FloatFormat::kF32, FloatFormat::kBf16, FloatFormat::kE5m2}) {
    CAPTURE(static_cast<int>(format));
    sr_cases::Case test = sr_cases::random_case(random, SrOp::kAdd, format, format, 1000);
    const auto u = value_bits(kernel_table(), sr_cases::Buffers(test), format, {1, 2});
    CHECK(value_bits(kernel_table(), sr_cases::Buffers(test), format, {1, 3}) != u);
    CHECK(value_bits(kernel_table(), sr_cases::Buffers(test), format, {2, 2}) != u);
    std::swap(test.in[0], test.in[1]);
    CHECK(value_bits(kernel_table(), sr_cases::Buffers(test), format, {1, 2}) == u);
    // 4096 proportions of 20,000: five standard errors of one are 0.018.
    if (format != FloatFormat::kE5m2) CHECK(worst_avalanche(format, random) < 0.025);
  }
}

TEST_CASE("sr: AdamW rounds w + update and both moments as the oracle does") {
  std::mt19937_64 random(32);
  using F = FloatFormat;
  check_adamw<float>({F::kBf16, F::kBf16, F::kF32, F::kF32}, random);
  check_adamw<float>({F::kF16, F::kF32, F::kBf16, F::kF32}, random);
  check_adamw<float>({F::kF32, F::kF32, F::kF32, F::kF32}, random);
  check_adamw<float>({F::kE5m2, F::kBf16, F::kF16, F::kBf16}, random);
  check_adamw<double>({F::kF64, F::kF64, F::kF64, F::kF64}, random);
  check_adamw<double>({F::kBf16, F::kF32, F::kF64, F::kF32}, random);
}

TEST_CASE("sr: a running sum rounds at each step, lanes do not meet") {
  std::mt19937_64 random(33);
  for (const FloatFormat format : sr_cases::kFormats) {
    std::vector<unsigned char> rows[SrReduction::kLanes];
    SrReduction reduction;
    reduction.rounding.format = format;
    reduction.rounding.key = {8, 9};
    reduction.format = FloatFormat::kBf16;
    reduction.lanes = 5;
    reduction.n = 600;
    std::vector<std::uint64_t> expect;
    for (int lane = 0; lane < reduction.lanes; ++lane) {
      std::vector<std::uint64_t> bits;
      for (int i = 0; i < reduction.n; ++i)
        bits.push_back(0x3a00 + random() % 0x400 + (random() % 8 == 0 ? 0x8000 : 0));
      rows[lane] = sr_cases::packed(bits, reduction.format);
      reduction.x[lane] = rows[lane].data();
      reduction.first[lane] = random() % 100000;
      std::vector<std::uint64_t> u(bits.size());
      kernel_table().uniform_bits(u.data(), reduction.n, reduction.rounding.key, reduction.first[lane]);
      std::uint64_t sum = rounded(SrOp::kCast, sr_oracle::decode(reduction.format, bits[0]), 0, format, u[0]);
      for (std::size_t i = 1; i < bits.size(); ++i) {
        sum = rounded(SrOp::kAdd, sr_oracle::decode(format, sum),
                      sr_oracle::decode(reduction.format, bits[i]), format, u[i]);
      }
      expect.push_back(sum);
    }
    for (const std::string& level : available_levels()) {
      SrReduction run = reduction;
      std::fill(std::begin(run.sums), std::end(run.sums), -0.0);
      kernel_table(level).sr_reduce(run);
      CAPTURE(level);
      CHECK(std::vector<std::uint64_t>(run.codes, run.codes + run.lanes) == expect);
    }
  }
}
