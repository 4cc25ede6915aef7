// Kernels of columns give the bits of one row after another: of the elementwise kernel, and of comparisons.
#include <doctest/doctest.h>

#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "popsr/kernels/loader.h"

using namespace popsr::kernels;

namespace {

template <class T>
constexpr Compute kCompute = sizeof(T) == 8 ? Compute::kF64 : Compute::kF32;

template <class T>
const ColumnKernels& columns_of(const KernelTable& table) {
  return *(sizeof(T) == 8 ? table.columns_f64 : table.columns_f32);
}

/// Few different numbers, zeros of both signs among them, and NaN where `nans`.
template <class T>
std::vector<T> elements(std::size_t count, std::uint64_t seed, bool nans) {
  std::mt19937_64 random(seed);
  std::vector<T> out(count);
  for (T& x : out) {
    const std::uint64_t r = random();
    x = static_cast<T>(static_cast<int>(r % 9) - 4) / T{8} + static_cast<T>(r >> 40 & 3U) * T(0x1p-20);
    if ((r >> 8) % 3 == 0) x = (r >> 16) % 2 == 0 ? T{0} : -T{0};
    if ((r >> 8) % 31 == 1) x = (r >> 16) % 2 == 0 ? std::numeric_limits<T>::infinity() : T(-1e30);
    if (nans && (r >> 8) % 17 == 2) x = std::numeric_limits<T>::quiet_NaN();
  }
  return out;
}

template <class T>
bool same(const std::vector<T>& a, const std::vector<T>& b) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::memcmp(&a[i], &b[i], sizeof(T)) != 0 && (a[i] == a[i] || b[i] == b[i])) return false;
  }
  return true;
}

struct Sizes {
  std::size_t rows, n, stride;
};
constexpr Sizes kSizes[] = {{0, 5, 5},   {1, 1, 1},   {2, 7, 9},    {3, 16, 16}, {4, 17, 20},
                            {5, 33, 40}, {8, 64, 64}, {11, 67, 70}, {1, 200, 1}, {13, 100, 101}};

template <class T>
void check_reductions(const KernelTable& table, const Sizes& sizes, bool nans) {
  const auto [rows, n, stride] = sizes;
  const std::vector<T> in = elements<T>(rows * stride + n, rows + n, nans);
  const std::vector<T> start = elements<T>(n, 99 + n, nans);
  const ColumnKernels& columns = columns_of<T>(table);
  const std::pair<ElementwiseOp, ColumnKernels::ReduceFn> ops[] = {{ElementwiseOp::kAdd, columns.sum},
                                                                   {ElementwiseOp::kMaximum, columns.max},
                                                                   {ElementwiseOp::kMinimum, columns.min}};
  for (const auto& [op, reduce] : ops) {
    std::vector<T> got = start, expect = start;
    reduce(got.data(), in.data(), static_cast<std::int64_t>(rows), static_cast<std::int64_t>(n),
           static_cast<std::int64_t>(stride));
    for (std::size_t r = 0; r < rows; ++r) {
      const void* operands[2] = {expect.data(), in.data() + r * stride};
      table.elementwise(op, kCompute<T>)(expect.data(), nullptr, operands, static_cast<std::int64_t>(n),
                                         nullptr);
    }
    CHECK(same(got, expect));
  }
}

template <class T>
void check_indices(const KernelTable& table, const Sizes& sizes, bool nans, bool largest) {
  const auto [rows, n, stride] = sizes;
  const std::vector<T> in = elements<T>(rows * stride + n, rows + n, nans);
  std::vector<T> best = elements<T>(n, 99 + n, nans), expect = best;
  std::vector<std::int32_t> index(n, 6), at(n, 6);
  const ColumnKernels& columns = columns_of<T>(table);
  (largest ? columns.argmax : columns.argmin)(best.data(), index.data(), in.data(),
                                              static_cast<std::int64_t>(rows), static_cast<std::int64_t>(n),
                                              static_cast<std::int64_t>(stride), 7);
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t c = 0; c < n; ++c) {
      const T x = in[r * stride + c];
      const bool beyond = largest ? x > expect[c] : x < expect[c];
      if (expect[c] != expect[c] || (!beyond && x == x)) continue;
      expect[c] = x;
      at[c] = static_cast<std::int32_t>(r) + 7;
    }
  }
  CHECK(same(best, expect));
  CHECK(index == at);
}

}  // namespace

TEST_CASE("columns are reduced as row after row") {
  for (const std::string& level : available_levels()) {
    for (const Sizes& sizes : kSizes) {
      for (const bool nans : {false, true}) {
        INFO("level ", level, " rows ", sizes.rows, " n ", sizes.n, " nans ", nans);
        check_reductions<float>(kernel_table(level), sizes, nans);
        check_reductions<double>(kernel_table(level), sizes, nans);
        for (const bool largest : {false, true}) {
          check_indices<float>(kernel_table(level), sizes, nans, largest);
          check_indices<double>(kernel_table(level), sizes, nans, largest);
        }
      }
    }
  }
}

TEST_CASE("columns of bfloat16 are summed as floats") {
  for (const std::string& level : available_levels()) {
    const KernelTable& table = kernel_table(level);
    for (const auto& [rows, n, stride] : kSizes) {
      const std::vector<float> wide = elements<float>(rows * stride + n, n, true);
      std::vector<std::uint16_t> words(wide.size());
      std::vector<float> exact(wide.size()), got(n, 0.5F), expect(n, 0.5F);
      table.narrow(popsr::FloatFormat::kBf16, words.data(), wide.data(), nullptr,
                   static_cast<std::int64_t>(wide.size()));
      table.widen(popsr::FloatFormat::kBf16, exact.data(), words.data(),
                  static_cast<std::int64_t>(wide.size()));
      const auto r = static_cast<std::int64_t>(rows), c = static_cast<std::int64_t>(n),
                 s = static_cast<std::int64_t>(stride);
      table.columns_bf16->sum(got.data(), words.data(), r, c, s);
      table.columns_f32->sum(expect.data(), exact.data(), r, c, s);
      CHECK(same(got, expect));
    }
  }
}
