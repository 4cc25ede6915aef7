// Accuracy of trigonometric functions, logarithms and activations against long double, exactness of
// remainders, and special values.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "kernels/operands.h"
#include "popsr/kernels/loader.h"

using namespace popsr::kernels;

namespace {

using Wide = long double;
constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

template <class T>
std::vector<T> apply(ElementwiseOp op, const std::vector<T>& a, const std::vector<T>& b, double p0 = 0,
                     double p1 = 0) {
  std::vector<T> out(a.size());
  const void* in[2] = {a.data(), b.data()};
  const double p[2] = {p0, p1};
  const auto column = sizeof(T) == 4 ? Compute::kF32 : Compute::kF64;
  kernel_table().elementwise(op, column)(out.data(), nullptr, in, static_cast<std::int64_t>(a.size()), p);
  return out;
}

template <class T>
T one(ElementwiseOp op, double x, double y = 0, double p0 = 0, double p1 = 0) {
  return apply<T>(op, {static_cast<T>(x)}, {static_cast<T>(y)}, p0, p1)[0];
}

template <class T>
bool same(T a, T b) {
  return (std::isnan(a) && std::isnan(b)) || (a == b && std::signbit(a) == std::signbit(b));
}

/// Distance in units of the last place of the format at `expect`; subnormals count in the least unit.
template <class T>
double ulps(T got, Wide expect) {
  if (std::isnan(expect)) return std::isnan(got) ? 0.0 : kInf;
  const T nearest = static_cast<T>(expect);
  if (std::isinf(nearest) || std::isinf(got)) return got == nearest ? 0.0 : kInf;
  int exponent = 0;
  std::frexp(nearest, &exponent);
  const int least = std::numeric_limits<T>::min_exponent - std::numeric_limits<T>::digits;
  const int unit = nearest == 0 ? least : std::max(exponent - std::numeric_limits<T>::digits, least);
  return static_cast<double>(std::fabs(static_cast<Wide>(got) - expect) * std::ldexp(1.0L, -unit));
}

/// Floats around multiples of pi/2, where the reduced argument is tiny.
template <class T>
std::vector<T> near_right_angles(int count) {
  std::vector<T> out;
  const Wide right = 1.57079632679489661923132169163975144L;
  for (int i = 1; i <= count; ++i) {
    Wide n = i;
    if (i % 3 == 0) n = static_cast<Wide>(i) * i * 37;
    const T x = static_cast<T>(n * right);
    out.push_back(x);
    out.push_back(-std::nextafter(x, std::numeric_limits<T>::max()));
  }
  return out;
}

/// Rows of more work than an addition that floats have, without the power 0 of a NaN, which is 1.
std::vector<ElementwiseOp> functions() {
  std::vector<ElementwiseOp> rows;
  for (int op = 0; op < kNumElementwiseOps; ++op) {
    const auto row = static_cast<ElementwiseOp>(op);
    const bool of_floats = (row_of(row).types & kFloatTypes) != 0 && row != ElementwiseOp::kIntegerPow;
    if (row_of(row).work > 1 && of_floats) rows.push_back(row);
  }
  return rows;
}

Wide sigmoid(Wide x) { return x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x)); }
Wide sigmoid_slope(Wide x) {
  const Wide t = std::exp(-std::fabs(x));
  return t / ((1 + t) * (1 + t));
}
Wide swish(Wide x) { return x * sigmoid(x); }
Wide swish_slope(Wide x) { return sigmoid(x) + x * sigmoid_slope(x); }
constexpr Wide kSqrtHalf = 0.707106781186547524400844362104849039L;
/// erfc has an error of a few units of long double beyond the 2^-64 x^2 of its argument.
Wide geluerf(Wide x) { return 0.5L * x * std::erfc(-x * kSqrtHalf); }
Wide geluerf_slope(Wide x) {
  return 0.5L * std::erfc(-x * kSqrtHalf) +
         x * std::exp(-0.5L * x * x) * 0.398942280401432677939946059934381868L;
}

template <class T>
double worst(const std::string& name, ElementwiseOp op, const std::vector<T>& x, Wide (*reference)(Wide),
             double bound) {
  const std::vector<T> got = apply(op, x, std::vector<T>(x.size(), 1));
  double most = 0;
  std::size_t at = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double error = ulps(got[i], reference(static_cast<Wide>(x[i])));
    if (error > most) {
      most = error;
      at = i;
    }
  }
  INFO(name, " f", 8 * sizeof(T), ": worst ", most, " ulp at ", x[at], ": ", got[at]);
  CHECK(most <= bound);
  return most;
}

template <class T>
constexpr int kCount = sizeof(T) == 4 ? 400000 : 200000;

template <class T>
void check_trigonometric(double bound) {
  for (const auto& x :
       {dense<T>(-10, 10, kCount<T>), dense<T>(-1e6, 1e6, kCount<T>), dense<T>(-3e6, 3e6, kCount<T>),
        all_binades<T>(kCount<T>), near_right_angles<T>(20000)}) {
    worst<T>(
        "sin", ElementwiseOp::kSin, x, [](Wide v) { return std::sin(v); }, bound);
    worst<T>(
        "cos", ElementwiseOp::kCos, x, [](Wide v) { return std::cos(v); }, bound);
  }
}

template <class T>
void check_log2(double bound) {
  for (auto x : {dense<T>(0.5, 2, kCount<T>), dense<T>(0.999, 1.001, kCount<T>), all_binades<T>(kCount<T>)}) {
    for (T& each : x) each = std::fabs(each);
    worst<T>(
        "log2", ElementwiseOp::kLog2, x, [](Wide v) { return std::log2(v); }, bound);
  }
  for (int e = std::numeric_limits<T>::min_exponent - std::numeric_limits<T>::digits;
       e < std::numeric_limits<T>::max_exponent; ++e) {
    CHECK(apply<T>(ElementwiseOp::kLog2, {std::ldexp(T{1}, e)}, {0})[0] == static_cast<T>(e));
  }
}

template <class T>
void check_activations(double sigmoid_bound, double swish_bound, double geluerf_bound) {
  const double bottom = sizeof(T) == 4 ? -110.0 : -760.0;
  const double normal_bottom = sizeof(T) == 4 ? -15.0 : -39.0;
  for (const auto& x :
       {dense<T>(bottom, 50, kCount<T>), dense<T>(-2, 2, kCount<T>), all_binades<T>(kCount<T>)}) {
    worst<T>("sigmoid", ElementwiseOp::kSigmoid, x, sigmoid, sigmoid_bound);
    worst<T>("swish", ElementwiseOp::kSwish, x, swish, swish_bound);
  }
  for (const auto& x :
       {dense<T>(normal_bottom, 10, kCount<T>), dense<T>(-1, 1, kCount<T>), all_binades<T>(kCount<T>)}) {
    worst<T>("geluerf", ElementwiseOp::kGeluErf, x, geluerf, geluerf_bound);
  }
}

/// Absolute error of a slope; dy = 1.
template <class T>
void check_slope(const std::string& name, ElementwiseOp op, Wide (*reference)(Wide), double low, double high,
                 double bound) {
  const std::vector<T> x = dense<T>(low, high, 100000);
  const std::vector<T> got = apply(op, x, std::vector<T>(x.size(), 1));
  double most = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const Wide exact = reference(static_cast<Wide>(x[i]));
    most = std::max(most, static_cast<double>(std::fabs(static_cast<Wide>(got[i]) - exact)));
  }
  INFO(name, " f", 8 * sizeof(T), ": worst absolute error ", most);
  CHECK(most <= bound);
}

template <class T>
void check_slopes(double bound) {
  check_slope<T>("sigmoid", ElementwiseOp::kSigmoidGrad, sigmoid_slope, -40, 40, bound);
  check_slope<T>("swish", ElementwiseOp::kSwishGrad, swish_slope, -40, 40, bound);
  check_slope<T>("geluerf", ElementwiseOp::kGeluErfGrad, geluerf_slope, -12, 12, bound);
}

template <class T>
void check_special_values() {
  for (const ElementwiseOp op : {ElementwiseOp::kSin, ElementwiseOp::kCos}) {
    CHECK(std::isnan(one<T>(op, kInf)));
    CHECK(std::isnan(one<T>(op, -kInf)));
  }
  CHECK(same(one<T>(ElementwiseOp::kSin, -0.0), static_cast<T>(-0.0)));
  CHECK(same(one<T>(ElementwiseOp::kSin, 0.0), static_cast<T>(0)));
  CHECK(same(one<T>(ElementwiseOp::kCos, -0.0), static_cast<T>(1)));
  const T least = std::numeric_limits<T>::denorm_min();
  CHECK(apply<T>(ElementwiseOp::kSin, {-least}, {0})[0] == -least);
  CHECK(same(one<T>(ElementwiseOp::kLog2, -0.0), static_cast<T>(-kInf)));
  CHECK(same(one<T>(ElementwiseOp::kLog2, 1.0), static_cast<T>(0)));
  CHECK(same(one<T>(ElementwiseOp::kLog2, kInf), static_cast<T>(kInf)));
  CHECK(std::isnan(one<T>(ElementwiseOp::kLog2, -1.0)));
  CHECK(same(one<T>(ElementwiseOp::kRsqrt, -0.0), static_cast<T>(-kInf)));
  CHECK(same(one<T>(ElementwiseOp::kRsqrt, kInf), static_cast<T>(0)));
  CHECK(std::isnan(one<T>(ElementwiseOp::kRsqrt, -1.0)));
  CHECK(same(one<T>(ElementwiseOp::kSigmoid, -kInf), static_cast<T>(0)));
  CHECK(same(one<T>(ElementwiseOp::kSigmoid, kInf), static_cast<T>(1)));
  CHECK(same(one<T>(ElementwiseOp::kSigmoidGrad, -kInf, 3), static_cast<T>(0)));
  for (const ElementwiseOp op : {ElementwiseOp::kSwish, ElementwiseOp::kGeluErf}) {
    CHECK(same(one<T>(op, kInf), static_cast<T>(kInf)));
    CHECK(same(one<T>(op, -kInf), static_cast<T>(-0.0)));
    CHECK(same(one<T>(op, -0.0), static_cast<T>(-0.0)));
  }
  for (const ElementwiseOp op : {ElementwiseOp::kSwishGrad, ElementwiseOp::kGeluErfGrad}) {
    CHECK(same(one<T>(op, kInf, 2), static_cast<T>(2)));
    CHECK(one<T>(op, -kInf, 2) == 0);
    CHECK(same(one<T>(op, 0, 2), static_cast<T>(1)));
  }
  for (const ElementwiseOp op : functions()) CHECK(std::isnan(one<T>(op, kNan, 2, 0, 1)));
  for (const ElementwiseOp op : {ElementwiseOp::kFloor, ElementwiseOp::kCeil}) {
    CHECK(std::isnan(one<T>(op, kNan)));
  }
}

/// Every bit of the C library's fmod, which is exact.
template <class T>
void check_fmod(const std::vector<T>& a, const std::vector<T>& b) {
  const std::vector<T> got = apply(ElementwiseOp::kFmod, a, b);
  for (std::size_t i = 0; i < a.size(); ++i) {
    INFO("fmod(", a[i], ", ", b[i], ") = ", got[i]);
    REQUIRE(same(got[i], std::fmod(a[i], b[i])));
  }
}

template <class T>
void check_remainders() {
  check_fmod(all_binades<T>(20000, 1), all_binades<T>(20000, 2));
  check_fmod(dense<T>(-1000, 1000, 100000), dense<T>(-7, 7, 100000));
  const T most = std::numeric_limits<T>::max();
  const T least = std::numeric_limits<T>::denorm_min();
  const T normal = std::numeric_limits<T>::min();
  const T inf = std::numeric_limits<T>::infinity();
  std::vector<T> a;
  std::vector<T> b;
  for (const T x : {T{0}, T{1}, T{3}, T{8}, most, least, 3 * least, normal, normal - least, inf, T(NAN)}) {
    for (const T y : {T{0}, T{1}, T{3}, T{8}, most, least, 3 * least, normal, normal - least, inf, T(NAN)}) {
      for (const T sign : {T{1}, T{-1}}) {
        a.push_back(sign * x);
        b.push_back(y);
        a.push_back(x);
        b.push_back(sign * y);
      }
    }
  }
  check_fmod(a, b);
}

template <class T>
T integer(ElementwiseOp op, Compute type, T a, T b, double p0 = 0, double p1 = 0) {
  T out = 0;
  const void* in[2] = {&a, &b};
  const double p[2] = {p0, p1};
  kernel_table().elementwise(op, type)(&out, nullptr, in, 1, p);
  return out;
}

}  // namespace

TEST_CASE("sin and cos stay within their bounds, for arguments of any size") {
  check_trigonometric<float>(0.55);
  check_trigonometric<double>(1.0);
}
TEST_CASE("the double that lies closest to a multiple of pi/2") {
  // 0x1.6ac5b262ca1ffp+849 is 4.69e-19 away from one (W. Kahan, "Minimizing q*m - n", 1983).
  CHECK(ulps(one<double>(ElementwiseOp::kCos, 0x1.6ac5b262ca1ffp+849), std::cos(0x1.6ac5b262ca1ffp+849L)) <=
        1.0);
  CHECK(std::fabs(one<double>(ElementwiseOp::kCos, 0x1.6ac5b262ca1ffp+849)) < 5e-19);
}
TEST_CASE("log2 stays within its bounds and is exact for powers of two") {
  check_log2<float>(0.51);
  check_log2<double>(0.51);
}
TEST_CASE("sigmoid, swish and geluerf stay within their bounds") {
  check_activations<float>(3, 4, 6);
  check_activations<double>(3, 4, 5);
}
TEST_CASE("slopes of sigmoid, swish and geluerf") {
  check_slopes<float>(4e-7);
  check_slopes<double>(1e-15);
}
TEST_CASE("rsqrt stays within its bounds") {
  for (auto x : {all_binades<float>(400000), dense<float>(0.25, 4, 400000)}) {
    for (float& each : x) each = std::fabs(each);
    worst<float>(
        "rsqrt", ElementwiseOp::kRsqrt, x, [](Wide v) { return 1 / std::sqrt(v); }, 1.5);
  }
  for (auto x : {all_binades<double>(200000), dense<double>(0.25, 4, 200000)}) {
    for (double& each : x) each = std::fabs(each);
    worst<double>(
        "rsqrt", ElementwiseOp::kRsqrt, x, [](Wide v) { return 1 / std::sqrt(v); }, 1.5);
  }
}
TEST_CASE("NaN stays NaN whatever its payload") {
  std::vector<float> x;
  for (const std::uint32_t bits :
       {0x7fc00000U, 0x7fc00001U, 0x7f800001U, 0x7fffffffU, 0xff800001U, 0xffc00155U}) {
    x.push_back(__builtin_bit_cast(float, bits));
  }
  for (const ElementwiseOp op : functions()) {
    INFO(row_of(op).name);
    for (const float y : apply(op, x, x)) CHECK(std::isnan(y));
  }
}
TEST_CASE("special values of the functions") {
  check_special_values<float>();
  check_special_values<double>();
}
TEST_CASE("remainders of floats are exact") {
  check_remainders<float>();
  check_remainders<double>();
}
TEST_CASE("remainders of integers never trap") {
  CHECK(integer<std::int32_t>(ElementwiseOp::kFmod, Compute::kI32, -7, 3) == -1);
  CHECK(integer<std::int32_t>(ElementwiseOp::kFmod, Compute::kI32, 7, -3) == 1);
  CHECK(integer<std::int32_t>(ElementwiseOp::kFmod, Compute::kI32, INT32_MIN, -1) == 0);
  CHECK(integer<std::int64_t>(ElementwiseOp::kFmod, Compute::kI64, INT64_MIN, -1) == 0);
  CHECK(integer<std::int64_t>(ElementwiseOp::kFmod, Compute::kI64, INT64_MIN, 0) == INT64_MIN);
  CHECK(integer<std::uint8_t>(ElementwiseOp::kFmod, Compute::kU8, 200, 0) == 200);
  CHECK(integer<std::int8_t>(ElementwiseOp::kIncrementMod, Compute::kI8, 127, 0, 1, 100) == -28);
  CHECK(integer<std::uint32_t>(ElementwiseOp::kIncrementMod, Compute::kU32, 9, 0, 1.9, 10.5) == 0);
}
TEST_CASE("rounding to integers, signs, clips") {
  CHECK(same(one<float>(ElementwiseOp::kCeil, -0.5), -0.0F));
  CHECK(same(one<double>(ElementwiseOp::kFloor, -0.0), -0.0));
  CHECK(one<double>(ElementwiseOp::kFloor, -0.5) == -1.0);
  CHECK(one<double>(ElementwiseOp::kFloor, 0x1p60) == 0x1p60);
  CHECK(same(one<float>(ElementwiseOp::kSign, -0.0), 0.0F));
  CHECK(same(one<float>(ElementwiseOp::kSign, kNan), 0.0F));
  CHECK(one<double>(ElementwiseOp::kSign, -kInf) == -1.0);
  CHECK(std::isnan(one<float>(ElementwiseOp::kClip, kNan, 0, -1, 1)));
  CHECK(one<float>(ElementwiseOp::kClip, kInf, 0, -1, 1) == 1.0F);
  CHECK(one<float>(ElementwiseOp::kClip, 0, 0, 2, 1) == 1.0F);
  CHECK(one<double>(ElementwiseOp::kClipGrad, 1, 5, -1, 1) == 0.0);
  CHECK(one<double>(ElementwiseOp::kClipGrad, 0.5, 5, -1, 1) == 5.0);
}
