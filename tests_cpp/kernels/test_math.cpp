// Accuracy of the polynomial kernels against long double, and their special values.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "kernels/operands.h"
#include "popsr/kernels/loader.h"

using namespace popsr::kernels;

namespace {

using Wide = long double;
constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

template <class T>
constexpr Compute column() {
  return sizeof(T) == 4 ? Compute::kF32 : Compute::kF64;
}

template <class T>
std::vector<T> apply(ElementwiseOp op, const std::vector<T>& a, const std::vector<T>& b) {
  std::vector<T> out(a.size());
  const void* in[2] = {a.data(), b.data()};
  kernel_table().elementwise(op, column<T>())(out.data(), nullptr, in, static_cast<std::int64_t>(a.size()),
                                              nullptr);
  return out;
}

/// Distance in units of the last place of the format at `expect`; subnormals count in the least unit.
template <class T>
double ulps(T got, Wide expect) {
  if (std::isnan(expect)) return std::isnan(got) ? 0.0 : kInf;
  const T nearest = static_cast<T>(expect);
  if (std::isinf(nearest) || std::isinf(got)) {
    if (got == nearest) return 0.0;
    // Near the overflow threshold the last finite value and infinity are one ulp apart.
    return std::isinf(nearest) && std::fabs(got) == std::numeric_limits<T>::max() ? 1.0 : kInf;
  }
  int exponent = 0;
  std::frexp(nearest, &exponent);
  const int least = std::numeric_limits<T>::min_exponent - std::numeric_limits<T>::digits;
  const int unit = nearest == 0 ? least : std::max(exponent - std::numeric_limits<T>::digits, least);
  return static_cast<double>(std::fabs(static_cast<Wide>(got) - expect) * std::ldexp(1.0L, -unit));
}

Wide gelu(Wide x) {
  const Wide u = std::sqrt(2.0L / 3.14159265358979323846264338327950288L) * (x + 0.044715L * x * x * x);
  return x / (1.0L + std::exp(-2.0L * u));
}

/// gelu'(x) = s + x s (1-s) 2u'
Wide gelu_slope(Wide x) {
  const Wide c = std::sqrt(2.0L / 3.14159265358979323846264338327950288L);
  const Wide t = std::exp(-2.0L * c * (x + 0.044715L * x * x * x));
  const Wide s = 1.0L / (1.0L + t);
  return s + x * s * (t * s) * 2.0L * c * (1.0L + 3.0L * 0.044715L * x * x);
}

template <class T, class Reference>
void check_bound(const std::string& name, ElementwiseOp op, const std::vector<T>& x, const std::vector<T>& y,
                 double bound, Reference reference) {
  const std::vector<T> got = apply(op, x, y);
  double worst = 0;
  std::size_t at = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double error = ulps(got[i], reference(static_cast<Wide>(x[i]), static_cast<Wide>(y[i])));
    if (error > worst) {
      worst = error;
      at = i;
    }
  }
  INFO(name, " f", 8 * sizeof(T), ": worst ", worst, " ulp at ", x[at], ", ", y[at], ": ", got[at]);
  CHECK(worst <= bound);
}

template <class T>
void check_unary(double bound_exp, double bound_log, double bound_tanh, double bound_gelu) {
  const bool single = sizeof(T) == 4;
  const double top = single ? 90.0 : 712.0;
  const double bottom = single ? -105.0 : -747.0;
  const int count = single ? 400000 : 200000;
  for (const auto& x : {dense<T>(bottom, top, count), dense<T>(-2, 2, count), all_binades<T>(count)}) {
    check_bound("exp", ElementwiseOp::kExp, x, x, bound_exp, [](Wide v, Wide) { return std::exp(v); });
    check_bound("tanh", ElementwiseOp::kTanh, x, x, bound_tanh, [](Wide v, Wide) { return std::tanh(v); });
  }
  for (const auto& x : {dense<T>(0.5, 2, count), dense<T>(0.999, 1.001, count), positive_binades<T>(count)}) {
    check_bound("log", ElementwiseOp::kLog, x, x, bound_log, [](Wide v, Wide) { return std::log(v); });
  }
  const double tail = single ? -11.0 : -23.0;
  for (const auto& x : {dense<T>(tail, 10, count), dense<T>(-1, 1, count), all_binades<T>(count)}) {
    check_bound("gelu", ElementwiseOp::kGelu, x, x, bound_gelu, [](Wide v, Wide) { return gelu(v); });
  }
}

template <class T>
void check_pow(double bound) {
  const int count = 200000;
  const auto power = [](Wide x, Wide y) { return std::pow(x, y); };
  check_bound("pow", ElementwiseOp::kPow, dense<T>(0.0, 4.0, count), dense<T>(-60, 60, count), bound, power);
  const std::vector<T> base = positive_binades<T>(count);
  std::vector<T> exponent = dense<T>(-1, 1, count);
  check_bound("pow", ElementwiseOp::kPow, base, exponent, bound, power);
  // Results at the limits of the format: y = a / log x with a in the interesting range.
  const double top = sizeof(T) == 4 ? 104.0 : 746.0;
  const std::vector<T> target = dense<T>(-top, top, count);
  for (std::size_t i = 0; i < base.size(); ++i) {
    exponent[i] = static_cast<T>(static_cast<Wide>(target[(i * 7919) % target.size()]) /
                                 std::log(static_cast<Wide>(base[i])));
  }
  check_bound("pow", ElementwiseOp::kPow, base, exponent, bound, power);
  std::vector<T> near_one = dense<T>(0.99, 1.01, count);
  for (std::size_t i = 0; i < near_one.size(); ++i) {
    exponent[i] = static_cast<T>(static_cast<Wide>(target[i]) / std::log(static_cast<Wide>(near_one[i])));
    if (!std::isfinite(exponent[i])) exponent[i] = 3;
  }
  check_bound("pow", ElementwiseOp::kPow, near_one, exponent, bound, power);
}

template <class T>
bool same(T a, T b) {
  return (std::isnan(a) && std::isnan(b)) || (a == b && std::signbit(a) == std::signbit(b));
}

template <class T>
T one(ElementwiseOp op, double x, double y = 0) {
  return apply<T>(op, {static_cast<T>(x)}, {static_cast<T>(y)})[0];
}

template <class T>
void check_special_values() {
  CHECK(same(one<T>(ElementwiseOp::kExp, kInf), static_cast<T>(kInf)));
  CHECK(same(one<T>(ElementwiseOp::kExp, -kInf), static_cast<T>(0)));
  CHECK(same(one<T>(ElementwiseOp::kExp, -0.0), static_cast<T>(1)));
  CHECK(same(one<T>(ElementwiseOp::kLog, 0.0), static_cast<T>(-kInf)));
  CHECK(same(one<T>(ElementwiseOp::kLog, -0.0), static_cast<T>(-kInf)));
  CHECK(same(one<T>(ElementwiseOp::kLog, 1.0), static_cast<T>(0)));
  CHECK(same(one<T>(ElementwiseOp::kLog, kInf), static_cast<T>(kInf)));
  CHECK(std::isnan(one<T>(ElementwiseOp::kLog, -1.0)));
  CHECK(std::isnan(one<T>(ElementwiseOp::kLog, -kInf)));
  CHECK(same(one<T>(ElementwiseOp::kTanh, kInf), static_cast<T>(1)));
  CHECK(same(one<T>(ElementwiseOp::kTanh, -kInf), static_cast<T>(-1)));
  CHECK(same(one<T>(ElementwiseOp::kTanh, -0.0), static_cast<T>(-0.0)));
  CHECK(same(one<T>(ElementwiseOp::kGelu, kInf), static_cast<T>(kInf)));
  CHECK(same(one<T>(ElementwiseOp::kGelu, -kInf), static_cast<T>(-0.0)));
  CHECK(same(one<T>(ElementwiseOp::kGelu, -0.0), static_cast<T>(-0.0)));
  CHECK(same(one<T>(ElementwiseOp::kGeluGrad, kInf, 2), static_cast<T>(2)));
  CHECK(same(one<T>(ElementwiseOp::kPowGradBase, 0, 0), static_cast<T>(0)));
  CHECK(same(one<T>(ElementwiseOp::kPowGradBase, 3, 2), static_cast<T>(6)));
  CHECK(same(one<T>(ElementwiseOp::kPowGradExponent, 0, 0), static_cast<T>(0)));
  for (const ElementwiseOp op : {ElementwiseOp::kExp, ElementwiseOp::kLog, ElementwiseOp::kTanh,
                                 ElementwiseOp::kGelu, ElementwiseOp::kGeluGrad})
    CHECK(std::isnan(one<T>(op, kNan)));
}

template <class T>
void check_pow_special_values() {
  const double least = static_cast<double>(std::numeric_limits<T>::denorm_min());
  const double most = static_cast<double>(std::numeric_limits<T>::max());
  const double values[] = {0.0,    -0.0, 1,     -1,   2,         -2,    0.5,  -0.5,
                           3,      -3,   2.5,   -2.5, kInf,      -kInf, kNan, least,
                           -least, most, -most, 1e9,  1.0000001, -7,    1023, 16777217};
  for (const double x : values) {
    for (const double y : values) {
      const T a = static_cast<T>(x);
      const T b = static_cast<T>(y);
      const Wide expect = std::pow(static_cast<Wide>(a), static_cast<Wide>(b));
      const T got = one<T>(ElementwiseOp::kPow, x, y);
      INFO(x, " ^ ", y, " = ", got);
      CHECK(ulps(got, expect) <= 2.0);
      if (!std::isnan(got)) CHECK(std::signbit(got) == std::signbit(expect));
    }
  }
}

}  // namespace

TEST_CASE("float kernels stay within their bounds") { check_unary<float>(2, 2, 2, 2); }
TEST_CASE("double kernels stay within their bounds") { check_unary<double>(2, 2, 2, 4); }
TEST_CASE("pow stays within its bounds") {
  check_pow<float>(1);
  check_pow<double>(2);
}
TEST_CASE("special values") {
  check_special_values<float>();
  check_special_values<double>();
}
TEST_CASE("pow has the special cases of IEEE 754") {
  check_pow_special_values<float>();
  check_pow_special_values<double>();
}
TEST_CASE("gelu gradient") {
  const std::vector<double> x = dense<double>(-12, 12, 100000);
  const std::vector<double> dy(x.size(), 1.0);
  const std::vector<double> got = apply(ElementwiseOp::kGeluGrad, x, dy);
  const std::vector<float> narrow =
      apply(ElementwiseOp::kGeluGrad, dense<float>(-12, 12, 100000), std::vector<float>(x.size(), 1));
  const std::vector<float> narrow_x = dense<float>(-12, 12, 100000);
  double worst = 0;
  double worst_f32 = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    worst = std::max(worst, static_cast<double>(std::fabs(static_cast<Wide>(got[i]) - gelu_slope(x[i]))));
    worst_f32 = std::max(worst_f32, ulps(narrow[i], gelu_slope(narrow_x[i])));
  }
  INFO("gelu_grad f64: worst absolute error ", worst, "; f32: worst ", worst_f32, " ulp");
  CHECK(worst < 1e-15);
  CHECK(worst_f32 <= 1.0);
}
