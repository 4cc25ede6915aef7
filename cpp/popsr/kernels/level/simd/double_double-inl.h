// Unevaluated sums hi + lo of two doubles with |lo| <= ulp(hi) / 2: about 106 bits, without fused
// multiply-add. T. J. Dekker, "A floating-point technique for extending the available precision", 1971.
#pragma once

#include "popsr/kernels/level/simd/vector_types-inl.h"

namespace popsr::kernels {
namespace {

struct DoubleDouble {
  double hi;
  double lo;
};

/// Exact sum a + b, |a| >= |b|.
[[gnu::always_inline]] inline DoubleDouble fast_two_sum(double a, double b) {
  const double sum = a + b;
  return {sum, b - (sum - a)};
}

/// Exact sum a + b.
[[gnu::always_inline]] inline DoubleDouble two_sum(double a, double b) {
  const double sum = a + b;
  const double b_part = sum - a;
  return {sum, (a - (sum - b_part)) + (b - b_part)};
}

/// Exact product a * b; |a|, |b| < 2^996 and no underflow.
[[gnu::always_inline]] inline DoubleDouble two_product(double a, double b) {
  const double splitter = 134217729.0;  // 2^27 + 1
  const double ca = splitter * a;
  const double cb = splitter * b;
  const double a_hi = ca - (ca - a);
  const double b_hi = cb - (cb - b);
  const double a_lo = a - a_hi;
  const double b_lo = b - b_hi;
  const double product = a * b;
  return {product, ((a_hi * b_hi - product) + a_hi * b_lo + a_lo * b_hi) + a_lo * b_lo};
}

/// Product x * y up to a few units of 2^-104.
[[gnu::always_inline]] inline DoubleDouble multiply(DoubleDouble x, DoubleDouble y) {
  const DoubleDouble p = two_product(x.hi, y.hi);
  return fast_two_sum(p.hi, p.lo + (x.hi * y.lo + x.lo * y.hi));
}

/// Sum x + y where |x| >= |y|.
[[gnu::always_inline]] inline DoubleDouble add_smaller(DoubleDouble x, DoubleDouble y) {
  const DoubleDouble s = fast_two_sum(x.hi, y.hi);
  return fast_two_sum(s.hi, s.lo + (x.lo + y.lo));
}

}  // namespace
}  // namespace popsr::kernels
