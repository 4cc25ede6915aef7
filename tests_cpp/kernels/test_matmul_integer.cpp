// Products of bytes against sums one after another, at every level this machine can run.
#include <doctest/doctest.h>

#include <cstdint>
#include <random>
#include <vector>

#include "popsr/kernels/contract/kernel_table.h"
#include "popsr/kernels/loader.h"

using namespace popsr::kernels;

namespace {

constexpr std::int64_t kGuard = 3;  ///< Untouched columns behind each row of C.

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

std::int32_t number(bool is_signed, std::uint8_t byte) {
  return is_signed ? static_cast<std::int8_t>(byte) : byte;
}

struct IntegerProblem {
  std::int64_t m, n, k;
  bool transposed_a, transposed_b, a_signed, b_signed, one_zero;
  std::int32_t a_zero = 0;
  std::vector<std::uint8_t> a = {}, b = {};
  std::vector<std::int32_t> b_zero = {};

  void fill(std::mt19937& random, bool has_zeros) {
    const auto byte = [&] { return static_cast<std::uint8_t>(random() % 256); };
    a.resize(at(m * k + 1));
    b.resize(at(k * n + 1));
    b_zero.resize(at(n + 1));
    for (std::uint8_t& x : a) x = random() % 3 == 0 ? std::uint8_t{255} : byte();
    for (std::uint8_t& x : b) x = random() % 3 == 0 ? std::uint8_t{128} : byte();
    if (!has_zeros) return;
    a_zero = number(a_signed, byte());
    for (std::int32_t& x : b_zero) x = number(b_signed, byte());
  }
  std::int32_t sum(std::int64_t i, std::int64_t j) const {
    std::uint32_t sum = 0;
    for (std::int64_t q = 0; q < k; ++q) {
      const std::int32_t x = number(a_signed, a[at(transposed_a ? q * m + i : i * k + q)]);
      const std::int32_t y = number(b_signed, b[at(transposed_b ? j * k + q : q * n + j)]);
      sum += static_cast<std::uint32_t>((x - a_zero) * (y - b_zero[one_zero ? 0 : at(j)]));
    }
    return static_cast<std::int32_t>(sum);
  }
  std::vector<std::int32_t> run(const KernelTable& table, int parts) const {
    std::vector<std::int32_t> c(at(m * (n + kGuard) + 1), 7);
    const IntegerMatmulArgs args{.m = m,
                                 .n = n,
                                 .k = k,
                                 .a = a.data(),
                                 .b = b.data(),
                                 .a_row = transposed_a ? 1 : k,
                                 .a_col = transposed_a ? m : 1,
                                 .b_row = transposed_b ? 1 : n,
                                 .b_col = transposed_b ? k : 1,
                                 .a_signed = a_signed,
                                 .b_signed = b_signed,
                                 .a_zero = a_zero,
                                 .b_zero = b_zero.data(),
                                 .one_b_zero = one_zero,
                                 .c = c.data(),
                                 .c_row = n + kGuard};
    struct alignas(64) Line {
      char bytes[64];
    };
    std::vector<Line> scratch(table.matmul_integer_scratch(args) / sizeof(Line) + 1);
    for (int part = 0; part < parts; ++part) table.matmul_integer(args, part, parts, scratch.data());
    return c;
  }
};

}  // namespace

TEST_CASE("products of bytes are exact at every level") {
  std::mt19937 random(5);
  const std::int64_t sizes[][3] = {{0, 3, 4},   {3, 0, 4},    {2, 3, 0},     {1, 1, 1},     {7, 5, 3},
                                   {6, 64, 64}, {13, 70, 33}, {1, 200, 513}, {40, 17, 515}, {5, 130, 1030}};
  for (const auto& [m, n, k] : sizes)
    for (unsigned bits = 0; bits < 64; ++bits) {
      const auto bit = [bits](unsigned i) { return (bits >> i & 1U) != 0; };
      IntegerProblem problem{m, n, k, bit(0), bit(1), bit(2), bit(3), bit(4)};
      problem.fill(random, bit(5));
      std::vector<std::int32_t> expected(at(m * (n + kGuard) + 1), 7);
      for (std::int64_t i = 0; i < m; ++i)
        for (std::int64_t j = 0; j < n; ++j) expected[at(i * (n + kGuard) + j)] = problem.sum(i, j);
      for (const std::string& level : available_levels())
        for (const int parts : {1, 3}) {
          INFO(level, " ", m, " x ", n, " x ", k, ", variant ", bits, ", parts ", parts);
          CHECK(problem.run(kernel_table(level), parts) == expected);
        }
    }
}
