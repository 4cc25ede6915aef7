// Kernels of softmax and log_softmax give the bits of their steps: widening, the maximum, differences,
// exponentials, the sum, and narrowing, each by the kernel of that step, at every level.
#include <doctest/doctest.h>

#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "popsr/kernels/loader.h"

using namespace popsr::kernels;
using popsr::FloatFormat;

namespace {

struct Form {
  const char* name;
  std::size_t size;
  FloatFormat format;
  Compute compute;
  const SoftmaxKernels* const KernelTable::*kernels;
};
constexpr Form kForms[] = {
    {"float32", 4, FloatFormat::kF32, Compute::kF32, &KernelTable::softmax_f32},
    {"float64", 8, FloatFormat::kF64, Compute::kF64, &KernelTable::softmax_f64},
    {"bfloat16", 2, FloatFormat::kBf16, Compute::kF32, &KernelTable::softmax_bf16},
    {"float16", 2, FloatFormat::kF16, Compute::kF32, &KernelTable::softmax_f16},
};

template <class T>
struct Steps {
  const KernelTable& table;
  Compute compute;

  std::vector<T> apply(ElementwiseOp op, const std::vector<T>& a, T b, float* lo = nullptr) const {
    std::vector<T> out(a.size());
    const std::vector<T> other(a.size(), b);
    const void* in[2] = {a.data(), other.data()};
    table.elementwise(op, compute)(out.data(), lo, in, static_cast<std::int64_t>(a.size()), nullptr);
    return out;
  }
  T reduce(Reduce reduce, const std::vector<T>& row) const {
    T out;
    const auto n = static_cast<std::int64_t>(row.size());
    table.reduce[static_cast<int>(reduce)][static_cast<int>(compute)](&out, nullptr, row.data(), 1, n, n);
    return out;
  }
  /// `lo`, when not null, receives residuals.
  std::vector<T> row(const std::vector<T>& x, bool log, float* lo) const {
    const std::vector<T> less = apply(ElementwiseOp::kSub, x, reduce(Reduce::kMax, x));
    const std::vector<T> exponentials = apply(ElementwiseOp::kExp, less, T{0});
    const T sum = reduce(Reduce::kSum, exponentials);
    if (!log) return apply(ElementwiseOp::kDiv, exponentials, sum);
    return apply(ElementwiseOp::kSub, less, apply(ElementwiseOp::kLog, {sum}, T{0})[0], lo);
  }
};

using Bytes = std::vector<unsigned char>;

Bytes by_steps(const KernelTable& table, const Form& form, const Bytes& in, bool log) {
  Bytes out(in.size());
  const std::size_t n = in.size() / form.size;
  if (form.size == 8) {
    std::vector<double> x(n);
    std::memcpy(x.data(), in.data(), in.size());
    std::memcpy(out.data(), Steps<double>{table, form.compute}.row(x, log, nullptr).data(), in.size());
    return out;
  }
  std::vector<float> x(n), lo(n);
  if (form.size == 4)
    std::memcpy(x.data(), in.data(), in.size());
  else
    table.widen(form.format, x.data(), in.data(), static_cast<std::int64_t>(n));
  const std::vector<float> y = Steps<float>{table, form.compute}.row(x, log, lo.data());
  if (form.size == 4)
    std::memcpy(out.data(), y.data(), in.size());
  else
    table.narrow(form.format, out.data(), y.data(), log ? lo.data() : nullptr, static_cast<std::int64_t>(n));
  return out;
}

/// Numbers of a few binades around 1; where `special`, with zeros, infinities and NaN now and then.
Bytes elements(const Form& form, std::size_t n, std::uint64_t seed, bool special) {
  std::mt19937_64 random(seed);
  Bytes out(n * form.size);
  const float inf = std::numeric_limits<float>::infinity();
  const float rare[] = {0.0F,   -0.0F,  -inf, inf, std::numeric_limits<float>::quiet_NaN(),
                        -1e30F, 1e-40F, -0.0F};
  const std::uint64_t kinds = seed % 3 == 0 ? 2 : seed % 3 == 1 ? 3 : 8;
  const float scale = seed % 2 == 0 ? 1.0F : 30.0F;
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint64_t r = random();
    float x = scale * static_cast<float>(static_cast<int>(r >> 20 & 0xffffU) - 32768) / 8192.0F;
    if (special && r % 7 < 3) x = rare[(r >> 8) % kinds];
    const double wide = x;
    if (form.size == 8) std::memcpy(&out[i * 8], &wide, 8);
    if (form.size == 4) std::memcpy(&out[i * 4], &x, 4);
    if (form.size == 2) kernel_table().narrow(form.format, &out[i * 2], &x, nullptr, 1);
  }
  return out;
}

/// True if the element's bits are those of a NaN.
bool is_nan(const Form& form, const unsigned char* at) {
  double wide = 0;
  float x = 0;
  if (form.size == 2) kernel_table().widen(form.format, &x, at, 1);
  if (form.size == 4) std::memcpy(&x, at, 4);
  if (form.size == 8) std::memcpy(&wide, at, 8);
  return x != x || wide != wide;
}

int differences(const Form& form, const unsigned char* a, const unsigned char* b, std::size_t n) {
  int count = 0;
  for (std::size_t at = 0; at < n * form.size; at += form.size) {
    const bool equal = std::memcmp(a + at, b + at, form.size) == 0;
    count += equal || (is_nan(form, a + at) && is_nan(form, b + at)) ? 0 : 1;
  }
  return count;
}

/// Elements of `rows` rows that differ from their steps.
int differences_of_rows(const std::string& level, const Form& form, std::size_t rows, std::size_t n,
                        bool log) {
  const KernelTable& table = kernel_table(level);
  const SoftmaxKernels& kernels = *(table.*form.kernels);
  const Bytes in = elements(form, rows * n, rows * 1000 + n, n % 4 != 0);
  Bytes out(in.size() + 1), room(4 * n * 4);
  const auto each = log ? kernels.log_softmax : kernels.softmax;
  each(out.data(), nullptr, in.data(), static_cast<std::int64_t>(rows), static_cast<std::int64_t>(n),
       room.data());
  int count = 0;
  for (std::size_t r = 0; r < rows; ++r) {
    const auto begin = static_cast<std::ptrdiff_t>(r * n * form.size);
    const Bytes row(in.begin() + begin, in.begin() + begin + static_cast<std::ptrdiff_t>(n * form.size));
    const Bytes expect = by_steps(table, form, row, log);
    count += differences(form, out.data() + begin, expect.data(), n);
  }
  return count;
}

}  // namespace

TEST_CASE("softmax and log_softmax give the bits of their steps") {
  for (const std::string& level : available_levels()) {
    for (const Form& form : kForms) {
      for (std::size_t n = 1; n < 200; n += n < 70 ? 1 : 9) {
        for (const std::size_t rows : {1U, 3U, 9U}) {
          INFO("level ", level, " ", form.name, " rows ", rows, " n ", n);
          CHECK(differences_of_rows(level, form, rows, n, false) == 0);
          CHECK(differences_of_rows(level, form, rows, n, true) == 0);
        }
      }
    }
  }
}

TEST_CASE("log_softmax gives the residuals of its last differences") {
  const Form& form = kForms[0];
  for (const std::string& level : available_levels()) {
    const KernelTable& table = kernel_table(level);
    for (std::size_t n = 1; n < 70; ++n) {
      const Bytes in = elements(form, n, n, false);
      std::vector<float> x(n), out(n), lo(n), expected_lo(n);
      std::memcpy(x.data(), in.data(), in.size());
      table.softmax_f32->log_softmax(out.data(), lo.data(), x.data(), 1, static_cast<std::int64_t>(n),
                                     nullptr);
      const Steps<float> steps{table, Compute::kF32};
      CHECK(out == steps.row(x, true, expected_lo.data()));
      CHECK(lo == expected_lo);
    }
  }
}
