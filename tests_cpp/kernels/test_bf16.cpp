// Kernels of bfloat16 give the bits of widening, the kernel of float and narrowing, at every level.
#include <doctest/doctest.h>

#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "popsr/kernels/loader.h"

using namespace popsr::kernels;

namespace {

using Words = std::vector<std::uint16_t>;

std::vector<float> widened(const KernelTable& table, const Words& x) {
  std::vector<float> out(x.size());
  table.widen(popsr::FloatFormat::kBf16, out.data(), x.data(), static_cast<std::int64_t>(x.size()));
  return out;
}

/// Result by way of float; `lo` is the residual of sums.
Words by_steps(const KernelTable& table, int op, const Words& a, const Words& b) {
  const std::vector<float> x = widened(table, a), y = widened(table, b);
  std::vector<float> hi(a.size()), lo(a.size());
  Words out(a.size());
  const void* in[2] = {x.data(), y.data()};
  const auto n = static_cast<std::int64_t>(a.size());
  table.elementwise(static_cast<ElementwiseOp>(op), Compute::kF32)(hi.data(), lo.data(), in, n, nullptr);
  const bool residual = row_of(static_cast<ElementwiseOp>(op)).residual;
  table.narrow(popsr::FloatFormat::kBf16, out.data(), hi.data(), residual ? lo.data() : nullptr, n);
  return out;
}

Words at_once(const KernelTable& table, int op, const Words& a, const Words& b) {
  Words out(a.size());
  const void* in[2] = {a.data(), b.data()};
  table.elementwise_bf16(static_cast<ElementwiseOp>(op))(out.data(), nullptr, in,
                                                         static_cast<std::int64_t>(a.size()), nullptr);
  return out;
}

Words all_words() {
  Words out(1U << 16);
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<std::uint16_t>(i);
  return out;
}

/// One NaN for all.
std::uint16_t unified(std::uint16_t x) { return (x & 0x7fffU) > 0x7f80U ? 0x7fffU : x; }

/// Number of results that differ.
int differences(const KernelTable& table, int op, const Words& a, const Words& b) {
  const Words expect = by_steps(table, op, a, b);
  const Words got = at_once(table, op, a, b);
  int count = 0;
  for (std::size_t i = 0; i < a.size(); ++i) count += unified(got[i]) == unified(expect[i]) ? 0 : 1;
  return count;
}

bool has_two_operands(int op) { return row_of(static_cast<ElementwiseOp>(op)).operands == 2; }

}  // namespace

TEST_CASE("kernels of bfloat16 give the bits of their three steps, for every operand") {
  const Words all = all_words();
  std::mt19937 random(3);
  for (const std::string& level : available_levels()) {
    for (int op = 0; op < kNumElementwiseOps; ++op) {
      if (kernel_table(level).elementwise_bf16(static_cast<ElementwiseOp>(op)) == nullptr) continue;
      // Second operands: special ones, then random bits.
      const Words seconds = {0,      0x8000, 1,      0x8001, 0x7f80, 0xff80,
                             0x7fc0, 0x3f80, 0x3f81, 0xbfff, 0x7f7f, 0x0080};
      const int count = has_two_operands(op) ? 100 : 1;
      for (int k = 0; k < count; ++k) {
        const auto at = static_cast<std::size_t>(k);
        const auto second = at < seconds.size() ? seconds[at] : static_cast<std::uint16_t>(random());
        INFO("level ", level, " op ", op, " second operand ", second);
        CHECK(differences(kernel_table(level), op, all, Words(all.size(), second)) == 0);
      }
    }
  }
}

TEST_CASE("kernels of bfloat16 take any length, in place too") {
  std::mt19937 random(4);
  Words a(80), b(80);
  for (auto& x : a) x = static_cast<std::uint16_t>(random());
  for (auto& x : b) x = static_cast<std::uint16_t>(random());
  for (const std::string& level : available_levels()) {
    const KernelTable& table = kernel_table(level);
    for (int op = 0; op < kNumElementwiseOps; ++op) {
      if (table.elementwise_bf16(static_cast<ElementwiseOp>(op)) == nullptr) continue;
      const Words whole = at_once(table, op, a, b);
      for (std::int64_t n = 0; n <= 70; ++n) {
        Words in_place = a;
        const void* in[2] = {in_place.data() + 3, b.data() + 3};
        table.elementwise_bf16(static_cast<ElementwiseOp>(op))(in_place.data() + 3, nullptr, in, n, nullptr);
        for (std::int64_t i = 0; i < 80; ++i) {
          const auto at = static_cast<std::size_t>(i);
          const bool inside = i >= 3 && i < 3 + n;
          REQUIRE(unified(in_place[at]) == unified(inside ? whole[at] : a[at]));
        }
      }
    }
  }
}

TEST_CASE("sums of rows of bfloat16 equal sums of floats") {
  std::mt19937 random(5);
  Words x(7 * 75);
  for (auto& each : x)
    each = static_cast<std::uint16_t>(0x3f00U + random() % 0x400U + (random() % 2U) * 0x8000U);
  for (const std::string& level : available_levels()) {
    const KernelTable& table = kernel_table(level);
    const std::vector<float> wide = widened(table, x);
    for (std::int64_t rows = 0; rows <= 6; ++rows) {
      for (std::int64_t n = 0; n <= 67; ++n) {
        float got[14] = {}, expect[14] = {};
        table.reduce_bf16[static_cast<int>(Reduce::kSum)](got, got + 7, x.data() + 1, rows, n, 75);
        // One by one: rows that are reduced together have the bits of rows that are not.
        for (std::int64_t r = 0; r < rows; ++r) {
          table.reduce[static_cast<int>(Reduce::kSum)][static_cast<int>(Compute::kF32)](
              expect + r, expect + 7 + r, wide.data() + 1 + r * 75, 1, n, 75);
        }
        REQUIRE(std::memcmp(got, expect, sizeof(got)) == 0);
      }
    }
  }
}
