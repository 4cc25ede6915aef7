#include "popsr/fields/field.h"

#include <cmath>
#include <cstdlib>

namespace popsr::fields {

Field::Field(Residue prime, Residue root) : prime_(prime), inverse_(prime), power_of_two_(0), square_(0) {
  for (int i = 0; i < 5; ++i) inverse_ *= 2 - prime_ * inverse_;  // Doubles the bits that are right.
  const Wide once = (static_cast<Wide>(1) << 64) % prime_;
  power_of_two_ = static_cast<Residue>(once);
  square_ = static_cast<Residue>(once * once % prime_);
  if (root == 0) return;
  powers_.resize(kWindows);
  for (std::array<Residue, 256>& window : powers_) {
    Residue power = 1;
    for (Residue& each : window) {
      each = prepared(power);
      power = mul(power, root);
    }
    root = power;
  }
}

Residue Field::power(Residue base, std::uint64_t exponent) const {
  Residue result = power_of_two_;  // Factors are prepared: 2 ** 64 times what they stand for.
  for (base = prepared(base); exponent != 0; exponent >>= 1, base = mul_prepared(base, base)) {
    if ((exponent & 1) != 0) result = mul_prepared(result, base);
  }
  return reduce(result);
}

Residue Field::power_of_root(Residue exponent) const {
  Residue result = 1;
  for (const std::array<Residue, 256>& window : powers_) {
    result = mul_prepared(result, window[exponent & 255]);
    exponent >>= 8;
  }
  return result;
}

Small small_fraction(const Field& field, Residue a) {
  // Bounds whose product is below prime / 2 make the fraction unique (Wang, 1981).
  constexpr std::int64_t kNumerator = std::int64_t{1} << 23;
  constexpr std::int64_t kDenominator = std::int64_t{1} << 36;
  constexpr Wide kProduct = Wide{1} << 44;
  Residue r0 = field.prime(), r1 = a;
  std::int64_t t0 = 0, t1 = 1;
  while (r1 > static_cast<Residue>(kNumerator)) {
    const Residue quotient = r0 / r1;
    const Residue r2 = r0 - quotient * r1;
    const Wide step =
        static_cast<Wide>(quotient) * static_cast<Wide>(std::abs(t1)) + static_cast<Wide>(std::abs(t0));
    if (step > static_cast<Wide>(kDenominator)) return {};
    const std::int64_t t2 = t1 > 0 ? -static_cast<std::int64_t>(step) : static_cast<std::int64_t>(step);
    r0 = r1, r1 = r2, t0 = t1, t1 = t2;
  }
  const auto n = static_cast<std::int64_t>(r1);
  const std::int64_t d = std::abs(t1);
  if (static_cast<Wide>(n) * static_cast<Wide>(d) > kProduct) return {};
  return {t1 < 0 ? -n : n, d};
}

double order_key(const Field& field, std::uint64_t key, Residue a) {
  if (const Small small = small_fraction(field, a); small.denominator != 0) {
    return static_cast<double>(small.numerator) / static_cast<double>(small.denominator);
  }
  const bool positive = field.is_square(a);
  const Residue size = positive ? a : field.prime() - a;
  const std::uint64_t bits = mix(key, size);
  const double exponent = static_cast<double>(bits >> 12) * 0x1p-52 * 48 - 24;
  return positive ? std::exp2(exponent) : -std::exp2(exponent);
}

}  // namespace popsr::fields
