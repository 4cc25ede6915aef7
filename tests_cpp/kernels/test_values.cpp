// Elementwise, reduction, conversion and gather kernels against their one-line definitions.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <random>
#include <vector>

#include "popsr/base/error.h"
#include "popsr/kernels/loader.h"

using namespace popsr::kernels;

namespace {

template <class T>
constexpr T kInf = std::numeric_limits<T>::infinity();
template <class T>
constexpr T kNan = std::numeric_limits<T>::quiet_NaN();
template <class T>
constexpr T kMost = std::numeric_limits<T>::max();

/// One element through the table.
template <class T>
T run(ElementwiseOp op, Compute type, T a, T b = 0, double p0 = 0, double p1 = 0) {
  T out = 0;
  const void* in[2] = {&a, &b};
  const double p[2] = {p0, p1};
  kernel_table().elementwise(op, type)(&out, nullptr, in, 1, p);
  return out;
}
float f32(ElementwiseOp op, float a, float b = 0, double p0 = 0, double p1 = 0) {
  return run(op, Compute::kF32, a, b, p0, p1);
}

template <class T>
bool same(T a, T b) {
  return (std::isnan(a) && std::isnan(b)) || (a == b && std::signbit(a) == std::signbit(b));
}

template <class To, class From>
To cast(Compute from, Compute to, From value) {
  To out = 0;
  kernel_table().cast[static_cast<int>(from)][static_cast<int>(to)](&out, &value, 1);
  return out;
}

}  // namespace

TEST_CASE("float operations at special values") {
  CHECK(same(f32(ElementwiseOp::kMaximum, -0.0F, 0.0F), 0.0F));
  CHECK(same(f32(ElementwiseOp::kMaximum, 0.0F, -0.0F), 0.0F));
  CHECK(same(f32(ElementwiseOp::kMinimum, 0.0F, -0.0F), -0.0F));
  CHECK(same(f32(ElementwiseOp::kMinimum, -0.0F, 0.0F), -0.0F));
  for (const ElementwiseOp op : {ElementwiseOp::kMaximum, ElementwiseOp::kMinimum}) {
    CHECK(std::isnan(f32(op, kNan<float>, 1)));
    CHECK(std::isnan(f32(op, 1, kNan<float>)));
  }
  CHECK(same(f32(ElementwiseOp::kRelu, -0.0F), 0.0F));
  CHECK(same(f32(ElementwiseOp::kRelu, -3), 0.0F));
  CHECK(std::isnan(f32(ElementwiseOp::kRelu, kNan<float>)));
  CHECK(f32(ElementwiseOp::kReluGrad, 2, 5) == 5);
  CHECK(f32(ElementwiseOp::kReluGrad, 0, 5) == 0);
  CHECK(f32(ElementwiseOp::kReluGrad, kNan<float>, 5) == 0);
  CHECK(f32(ElementwiseOp::kAbsGrad, -2, 5) == -5);
  CHECK(f32(ElementwiseOp::kAbsGrad, -0.0F, 5) == 0);
  CHECK(f32(ElementwiseOp::kTanhGrad, 0.5F, 4) == 3);
  CHECK(same(f32(ElementwiseOp::kNegate, 0.0F), -0.0F));
  CHECK(same(f32(ElementwiseOp::kAbs, -0.0F), 0.0F));
  CHECK(f32(ElementwiseOp::kSqrt, 2) == std::sqrt(2.0F));
  CHECK(std::isnan(f32(ElementwiseOp::kSqrt, -1)));
  CHECK(f32(ElementwiseOp::kScaledAdd, 3, 5, 0.5, -2) == -8.5F);
  CHECK(f32(ElementwiseOp::kScale, 3, 0, 0.1) == 3 * 0.1F);
  CHECK(f32(ElementwiseOp::kEqualMask, kNan<float>, kNan<float>) == 0);
  CHECK(f32(ElementwiseOp::kEqualMask, 0.0F, -0.0F) == 1);
}

TEST_CASE("integers wrap and x / 0 = 0") {
  CHECK(run<std::int8_t>(ElementwiseOp::kAdd, Compute::kI8, 127, 1) == -128);
  CHECK(run<std::uint16_t>(ElementwiseOp::kMul, Compute::kU16, 65535, 65535) == 1);
  CHECK(run<std::int64_t>(ElementwiseOp::kSub, Compute::kI64, std::numeric_limits<std::int64_t>::min(), 1) ==
        kMost<std::int64_t>);
  CHECK(run<std::int32_t>(ElementwiseOp::kDiv, Compute::kI32, std::numeric_limits<std::int32_t>::min(), -1) ==
        std::numeric_limits<std::int32_t>::min());
  CHECK(run<std::int32_t>(ElementwiseOp::kDiv, Compute::kI32, -7, 2) == -3);
  CHECK(run<std::uint8_t>(ElementwiseOp::kDiv, Compute::kU8, 7, 0) == 0);
  CHECK(run<std::int8_t>(ElementwiseOp::kAbs, Compute::kI8, -128) == -128);
  CHECK(run<std::uint32_t>(ElementwiseOp::kNegate, Compute::kU32, 1) == kMost<std::uint32_t>);
  CHECK(run<std::int32_t>(ElementwiseOp::kPow, Compute::kI32, -3, 5) == -243);
  CHECK(run<std::int32_t>(ElementwiseOp::kPow, Compute::kI32, 0, 0) == 1);
  CHECK(run<std::int32_t>(ElementwiseOp::kPow, Compute::kI32, 2, -1) == 0);
  CHECK(run<std::int32_t>(ElementwiseOp::kPow, Compute::kI32, -1, -3) == -1);
  CHECK(run<std::uint64_t>(ElementwiseOp::kPow, Compute::kU64, 3, 41) ==
        36472996377170786403ULL % 0xffffffffffffffffULL);
  CHECK(run<std::int16_t>(ElementwiseOp::kScale, Compute::kI16, 7, 0, -2.9) == -14);
  CHECK(run<std::uint8_t>(ElementwiseOp::kMaximum, Compute::kBool, 0, 1) == 1);
}

TEST_CASE("the residual of an addition is exact") {
  std::mt19937_64 random(1);
  std::vector<float> a = {kMost<float>,    kMost<float>, kInf<float>, kNan<float>,
                          0x1.fffffep127F, 0x1p103F,     -0.0F};
  std::vector<float> b = {0x1p102F, -0x1p102F, -kInf<float>, 1, kMost<float>, 0x1.fffffep127F, -0.0F};
  while (a.size() < 100000) {
    const std::uint64_t r = random();
    a.push_back(__builtin_bit_cast(float, static_cast<std::uint32_t>(r)));
    // Exponents within 30 of each other, so that a + b is exact in double-extended arithmetic.
    const std::uint32_t exponent =
        (static_cast<std::uint32_t>(r) >> 23 & 255U) + static_cast<std::uint32_t>(r >> 58) % 31U;
    const std::uint32_t other = std::clamp(exponent, 15U, 254U + 15U) - 15U;
    b.push_back(__builtin_bit_cast(float, (static_cast<std::uint32_t>(r >> 32) & 0x807fffffU) | other << 23));
  }
  const auto n = static_cast<std::int64_t>(a.size());
  std::vector<float> hi(a.size()), lo(a.size());
  const void* in[2] = {a.data(), b.data()};
  kernel_table().elementwise(ElementwiseOp::kSub, Compute::kF32)(hi.data(), lo.data(), in, n, nullptr);
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double exact = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    REQUIRE(same(hi[i], a[i] - b[i]));
    const bool wide = std::fabs(std::log2(std::fabs(a[i])) - std::log2(std::fabs(b[i]))) > 28;
    if (!std::isfinite(hi[i])) {
      REQUIRE(lo[i] == 0);
    } else if (!wide || a[i] == 0 || b[i] == 0) {
      REQUIRE(static_cast<double>(hi[i]) + static_cast<double>(lo[i]) == exact);
    }
  }
}

TEST_CASE("sums go through sixteen lanes and a tree") {
  std::mt19937_64 random(2);
  for (const std::int64_t n : {1, 2, 15, 16, 17, 100, 1000}) {
    std::vector<float> x(static_cast<std::size_t>(n));
    for (float& v : x) v = static_cast<float>(static_cast<int>(random() % 2000001) - 1000000) / 777.0F;
    float lanes[16];
    std::fill_n(lanes, 16, -0.0F);
    for (std::size_t i = 0; i < x.size(); ++i) lanes[i % 16] += x[i];
    for (int width = 8; width > 1; width /= 2) {
      for (int i = 0; i < width; ++i) lanes[i] += lanes[i + width];
    }
    float hi = 0, lo = 0;
    kernel_table().reduce[0][0](&hi, &lo, x.data(), 1, n, n);
    CHECK(same(hi, lanes[0] + lanes[1]));
    CHECK(static_cast<double>(hi) + static_cast<double>(lo) ==
          static_cast<double>(lanes[0]) + static_cast<double>(lanes[1]));
  }
}

TEST_CASE("reductions of nothing and of special values") {
  const auto reduce = [](Reduce op, const std::vector<float>& x) {
    float out = 7;
    const auto n = static_cast<std::int64_t>(x.size());
    kernel_table().reduce[static_cast<int>(op)][0](&out, nullptr, x.data(), 1, n, n);
    return out;
  };
  CHECK(same(reduce(Reduce::kSum, {}), 0.0F));
  CHECK(same(reduce(Reduce::kSum, {-0.0F}), -0.0F));
  CHECK(same(reduce(Reduce::kMax, {}), -kInf<float>));
  CHECK(same(reduce(Reduce::kMin, {}), kInf<float>));
  CHECK(same(reduce(Reduce::kMax, {-0.0F, 0.0F, -0.0F}), 0.0F));
  CHECK(same(reduce(Reduce::kMin, {0.0F, -0.0F, 3.0F}), -0.0F));
  CHECK(std::isnan(reduce(Reduce::kMax, {1, -kNan<float>, kInf<float>})));
  CHECK(std::isnan(reduce(Reduce::kMin, {1, kNan<float>, -kInf<float>})));
  CHECK(reduce(Reduce::kMax, {-5, -3, -4}) == -3);
  CHECK(reduce(Reduce::kMin, {-5, 3, -4}) == -5);
  CHECK(reduce(Reduce::kSumSquare, {1, 2, 3}) == 14);
  CHECK(reduce(Reduce::kProduct, {}) == 1);
  CHECK(reduce(Reduce::kProduct, {2, 3, -4}) == -24);
  CHECK(same(reduce(Reduce::kProduct, {-0.0F, 5}), -0.0F));
  std::vector<float> row(20, -kInf<float>), out(20);
  kernel_table().softmax_f32->softmax(out.data(), nullptr, row.data(), 1, 20, nullptr);
  for (const float value : out) CHECK(std::isnan(value));
}

TEST_CASE("casts saturate, truncate and wrap") {
  using C = Compute;
  CHECK(cast<std::int8_t>(C::kF32, C::kI8, 127.9F) == 127);
  CHECK(cast<std::int8_t>(C::kF32, C::kI8, 128.0F) == 127);
  CHECK(cast<std::int8_t>(C::kF32, C::kI8, -128.9F) == -128);
  CHECK(cast<std::uint8_t>(C::kF32, C::kU8, -1.0F) == 0);
  CHECK(cast<std::uint8_t>(C::kF32, C::kU8, kNan<float>) == 0);
  CHECK(cast<std::uint64_t>(C::kF64, C::kU64, 1.8446744073709549568e19) == 18446744073709549568ULL);
  CHECK(cast<std::uint64_t>(C::kF64, C::kU64, 2e19) == kMost<std::uint64_t>);
  CHECK(cast<std::int64_t>(C::kF32, C::kI64, 9.3e18F) == kMost<std::int64_t>);
  CHECK(cast<std::int64_t>(C::kF32, C::kI64, -kInf<float>) == std::numeric_limits<std::int64_t>::min());
  CHECK(cast<std::int8_t>(C::kI32, C::kI8, std::int32_t{300}) == 44);
  CHECK(cast<std::uint8_t>(C::kF32, C::kBool, kNan<float>) == 1);
  CHECK(cast<float>(C::kBool, C::kF32, std::uint8_t{1}) == 1.0F);
  CHECK(cast<float>(C::kU64, C::kF32, (1ULL << 40) + (1ULL << 16) + 1) == std::ldexp(1 + 0x1p-23F, 40));
  CHECK(same(cast<float>(C::kF64, C::kF32, -1e-60), -0.0F));
}

TEST_CASE("splitting keeps the sign and presence of the rest") {
  std::vector<std::int64_t> x = {
      0, -1, kMost<std::int64_t>, -kMost<std::int64_t> - 1, (1LL << 40) + 1, -(1LL << 53) - 1};
  std::vector<float> hi(x.size()), lo(x.size());
  kernel_table().split_i64(hi.data(), lo.data(), x.data(), static_cast<std::int64_t>(x.size()));
  for (std::size_t i = 0; i < x.size(); ++i) {
    CHECK(hi[i] == static_cast<float>(x[i]));
    CHECK(static_cast<long double>(hi[i]) + static_cast<long double>(lo[i]) ==
          static_cast<long double>(x[i]));
  }
  const std::uint64_t most = kMost<std::uint64_t>;
  kernel_table().split_u64(hi.data(), lo.data(), &most, 1);
  CHECK(hi[0] == 0x1p64F);
  CHECK(lo[0] == -1.0F);
  const double d[] = {1 + 0x1p-40, -1e-300, kInf<double>, 1e39, 0x1p-149 + 0x1p-190};
  kernel_table().split_f64(hi.data(), lo.data(), d, 5);
  CHECK(lo[0] == 0x1p-40F);
  CHECK(same(hi[1], -0.0F));
  CHECK(lo[1] < 0);
  CHECK(lo[2] == 0);
  CHECK(same(hi[3], kInf<float>));
  CHECK(lo[4] > 0);
}

TEST_CASE("gather equals indexing") {
  std::mt19937_64 random(8);
  std::vector<std::uint64_t> data(60000);
  for (auto& value : data) value = random();
  for (int trial = 0; trial < 3000; ++trial) {
    const int rank = static_cast<int>(random() % 5);
    std::int64_t shape[8], strides[8], last = 0, count = 1;
    const std::int64_t choices[] = {0, 1, 1, 2, 7, 40, 41};
    for (int axis = 0; axis < rank; ++axis) {
      shape[axis] = static_cast<std::int64_t>(random() % (rank < 3 ? 40 : 7));
      strides[axis] = choices[random() % 7];
      last += shape[axis] * strides[axis];
      count *= shape[axis];
    }
    const int size = 1 << random() % 4;
    REQUIRE(last < 60000);
    const auto* bytes = reinterpret_cast<const unsigned char*>(data.data());
    std::vector<unsigned char> got(static_cast<std::size_t>(count * size)), expect = got;
    kernel_table().gather_strided(got.data(), bytes, rank, shape, strides, size);
    for (std::int64_t i = 0; i < count; ++i) {
      std::int64_t rest = i, offset = 0;
      for (int axis = rank - 1; axis >= 0; --axis) {
        offset += rest % shape[axis] * strides[axis];
        rest /= shape[axis];
      }
      std::copy_n(bytes + offset * size, size, expect.begin() + i * size);
    }
    REQUIRE(got == expect);
  }
}

TEST_CASE("an unknown level is an error that names the choices") {
  CHECK_THROWS_WITH_AS(kernel_table("v9"), doctest::Contains("got 'v9', expected one of"),
                       popsr::AttributeValueError);
}
