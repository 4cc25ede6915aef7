// Kernels that take several rows at once, or a number in the place of an array, give the bits of one row
// after the other, at every level.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "popsr/kernels/loader.h"

using namespace popsr::kernels;

namespace {

using Floats = std::vector<float>;

Floats random_floats(std::mt19937& random, std::size_t n) {
  Floats out(n);
  for (float& x : out) x = std::ldexp(static_cast<float>(random() % 2001U) - 1000.0F, -9);
  return out;
}

bool same_or_nan(float a, float b) {
  return (std::isnan(a) && std::isnan(b)) || std::memcmp(&a, &b, sizeof(a)) == 0;
}

/// Largest number, with -0 before +0; NaN if any is.
float largest(const float* x, std::int64_t n) {
  float best = -std::numeric_limits<float>::infinity();
  for (std::int64_t i = 0; i < n; ++i) {
    if (std::isnan(x[i])) return x[i];
    if (x[i] > best || (x[i] == best && !std::signbit(x[i]))) best = x[i];
  }
  return best;
}

template <class T>
void check_numbers(const KernelTable& table, Compute type, const std::vector<T>& x, T number) {
  for (int op = 0; op < kNumElementwiseOps; ++op) {
    const ElementwiseFn fn = table.elementwise_kernels[op]->with_number[static_cast<int>(type)];
    if (fn == nullptr) continue;
    const std::vector<T> repeated(x.size(), number);
    std::vector<T> got(x.size()), expect(x.size());
    const auto n = static_cast<std::int64_t>(x.size());
    const void* in[2] = {x.data(), &number};
    fn(got.data(), nullptr, in, n, nullptr);
    in[1] = repeated.data();
    table.elementwise(static_cast<ElementwiseOp>(op), type)(expect.data(), nullptr, in, n, nullptr);
    CHECK(std::memcmp(got.data(), expect.data(), x.size() * sizeof(T)) == 0);
  }
}

}  // namespace

TEST_CASE("a few different words are sorted") {
  std::mt19937_64 random(7);
  for (const std::string& level : available_levels()) {
    for (std::int64_t n = 0; n <= kFewWords; ++n) {
      std::vector<std::uint64_t> words(static_cast<std::size_t>(n));
      for (std::size_t i = 0; i < words.size(); ++i)
        words[i] = (random() % 4U) << 62 | i << 8 | random() % 256U;
      std::shuffle(words.begin(), words.end(), random);
      std::vector<std::uint64_t> expect = words;
      std::ranges::sort(expect);
      kernel_table(level).sort_few_words(words.data(), n);
      REQUIRE(words == expect);
    }
  }
}

TEST_CASE("the largest of rows of floats and of bfloat16") {
  std::mt19937 random(11);
  for (const std::string& level : available_levels()) {
    const KernelTable& table = kernel_table(level);
    for (std::int64_t rows = 0; rows <= 9; ++rows) {
      for (const std::int64_t n : {0, 1, 31, 32, 33, 63, 64, 65, 100}) {
        std::vector<std::uint16_t> words(static_cast<std::size_t>(rows * 101));
        for (auto& word : words)
          word = static_cast<std::uint16_t>(random() % 8U == 0 ? (random() % 2U) << 15 : random() % 0x17f80U);
        if (rows > 5) words[static_cast<std::size_t>(5 * 101 + n / 2)] = 0xffc1;
        Floats x(words.size()), got(10, 0.5F), small(10, 0.5F), from_words(10, 0.5F);
        table.widen(popsr::FloatFormat::kBf16, x.data(), words.data(), static_cast<std::int64_t>(x.size()));
        const auto reduce = [&](Reduce op) { return table.reduce[static_cast<int>(op)][0]; };
        reduce(Reduce::kMax)(got.data(), nullptr, x.data(), rows, n, 101);
        table.reduce_bf16[static_cast<int>(Reduce::kMax)](from_words.data(), nullptr, words.data(), rows, n,
                                                          101);
        for (float& each : x) each = -each;
        reduce(Reduce::kMin)(small.data(), nullptr, x.data(), rows, n, 101);
        for (float& each : x) each = -each;
        for (std::int64_t r = 0; r < 10; ++r) {
          const auto at = static_cast<std::size_t>(r);
          const float expect = r < rows ? largest(x.data() + r * 101, n) : 0.5F;
          REQUIRE(same_or_nan(got[at], expect));
          REQUIRE(same_or_nan(from_words[at], expect));
          REQUIRE(same_or_nan(small[at], r < rows ? -expect : 0.5F));
        }
      }
    }
  }
}

TEST_CASE("operand 1 as one number") {
  std::mt19937 random(3);
  for (const std::string& level : available_levels()) {
    const KernelTable& table = kernel_table(level);
    const Floats x = random_floats(random, 77);
    for (const float number : {-2.0F, 0.0F, 0.3F}) {
      check_numbers<float>(table, Compute::kF32, x, number);
      check_numbers<double>(table, Compute::kF64, {x.begin(), x.end()}, static_cast<double>(number));
    }
    std::vector<std::uint16_t> words(77), got(77), expect(77);
    for (auto& word : words)
      word = static_cast<std::uint16_t>(random() % 0x7f80U + (random() % 2U) * 0x8000U);
    const std::vector<std::uint16_t> repeated(77, 0x3eab);
    for (int op = 0; op < kNumElementwiseOps; ++op) {
      const ElementwiseFn fn = table.elementwise_kernels[op]->bf16_with_number;
      if (fn == nullptr) continue;
      const void* in[2] = {words.data(), repeated.data()};
      fn(got.data(), nullptr, in, 77, nullptr);
      table.elementwise_bf16(static_cast<ElementwiseOp>(op))(expect.data(), nullptr, in, 77, nullptr);
      CHECK(got == expect);
    }
  }
}

TEST_CASE("gradients of normalised rows: several at once, with weights in place") {
  std::mt19937 random(5);
  constexpr std::int64_t kRows = 7, kGroups = 3;
  for (const std::string& level : available_levels()) {
    const KernelTable& table = kernel_table(level);
    const NormKernels& norm = table.norm_f32;
    for (const auto& [n, run] : std::vector<std::pair<std::int64_t, std::int64_t>>{
             {1, 1}, {15, 1}, {16, 1}, {70, 1}, {16, 16}, {64, 16}, {96, 48}}) {
      const auto size = static_cast<std::size_t>(kRows * n);
      const Floats x = random_floats(random, size), dy = random_floats(random, size);
      const Floats weight = random_floats(random, static_cast<std::size_t>(kGroups * n / run));
      Floats stats(2 * kRows), g(size), sums(2 * kRows), out(size), one(2), expect(size);
      norm.stats(stats.data(), x.data(), kRows, n, 1e-5);
      for (std::int64_t i = 0; i < kRows * n; ++i) {
        const std::int64_t group = (1 + i / n) % kGroups;
        const auto at = static_cast<std::size_t>(i);
        g[at] = dy[at] * weight[static_cast<std::size_t>(group * (n / run) + i % n / run)];
      }
      NormSlopes slopes{.dy = dy.data(), .weight = weight.data(), .groups = kGroups, .group = 1, .run = run};
      norm.sums(sums.data(), x.data(), slopes, stats.data(), kRows, n, 0, 1);
      for (std::int64_t r = 0; r < kRows; ++r, ++slopes.group) {
        norm.sums(one.data(), x.data() + r * n, {.dy = g.data() + r * n}, stats.data(), 1, n, 2 * r, 2);
        REQUIRE(std::memcmp(one.data(), sums.data() + 2 * r, 2 * sizeof(float)) == 0);
        slopes.dy = dy.data() + r * n;
        norm.slope(out.data() + r * n, x.data() + r * n, slopes, stats.data() + 2 * r, one.data(), n);
        norm.slope(expect.data() + r * n, x.data() + r * n, {.dy = g.data() + r * n}, stats.data() + 2 * r,
                   one.data(), n);
      }
      REQUIRE(out == expect);
      Floats scale(static_cast<std::size_t>(n)), shift(scale), each_scale(scale), each_shift(scale);
      norm.accumulate(scale.data(), shift.data(), x.data(), dy.data(), stats.data(), kRows, n, n, 2);
      for (std::int64_t r = 0; r < kRows; ++r) {
        norm.accumulate(each_scale.data(), each_shift.data(), x.data() + r * n, dy.data() + r * n,
                        stats.data() + 2 * r, 1, n, n, 2);
      }
      REQUIRE(scale == each_scale);
      REQUIRE(shift == each_shift);
    }
  }
}
