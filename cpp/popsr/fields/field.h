// A prime field: residues below p as plain numbers, multiplied by Montgomery's reduction.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace popsr::fields {

using Residue = std::uint64_t;
__extension__ using Wide = unsigned __int128;

inline constexpr int kMaxBits = 60;  ///< Bits of the largest prime, which is below 2 ** kMaxBits.

/// Mixes two numbers into 64 pseudorandom bits.
inline std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  const auto fuse = [](std::uint64_t x, std::uint64_t y) {
    const Wide product = static_cast<Wide>(x) * y;
    return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
  };
  const std::uint64_t x = fuse(a ^ 0x9e3779b97f4a7c15u, b ^ 0xd1b54a32d192ed03u);
  const std::uint64_t y = fuse(x ^ 0x8cb92ba72f3d8dd7u ^ b, (a << 32 | a >> 32) ^ 0xa24baed4963ee407u);
  return fuse(y ^ 0xe7037ed1a0b428dbu, x ^ 0x589965cc75374cc3u);
}

/// Symmetry of a function: even if f(-x) = f(x), odd if f(-x) = -f(x).
enum class Parity : std::uint8_t { kNone, kEven, kOdd };

class Field {
 public:
  /// Makes the field of a prime. `root` has order `exponents`, for powers with exponents below `exponents`;
  /// 0: none.
  Field(Residue prime, Residue root);

  Residue prime() const { return prime_; }
  Residue add(Residue a, Residue b) const {
    const Residue sum = a + b;
    return sum >= prime_ ? sum - prime_ : sum;
  }
  Residue sub(Residue a, Residue b) const { return a >= b ? a - b : a + prime_ - b; }
  Residue negate(Residue a) const { return a == 0 ? 0 : prime_ - a; }
  Residue mul(Residue a, Residue b) const { return restore(reduce(static_cast<Wide>(a) * b)); }
  /// Montgomery reduction: a / 2 ** 64, for a below prime * 2 ** 64.
  Residue reduce(Wide a) const {
    const Residue factor = static_cast<Residue>(a) * inverse_;
    const auto carry = static_cast<Residue>((static_cast<Wide>(factor) * prime_) >> 64);
    const auto high = static_cast<Residue>(a >> 64);
    return high >= carry ? high - carry : high + prime_ - carry;
  }
  /// Inverse of reduce(): a * 2 ** 64.
  Residue restore(Residue a) const { return reduce(static_cast<Wide>(a) * square_); }
  /// Prepares a factor that is used repeatedly: `mul_prepared` is faster than `mul`.
  Residue prepared(Residue a) const { return mul(a, power_of_two_); }
  Residue mul_prepared(Residue a, Residue factor) const { return reduce(static_cast<Wide>(a) * factor); }
  /// Reduces a sum modulo prime * 2 ** 64.
  Wide folded(Wide sum) const {
    const auto high = static_cast<Residue>(sum >> 64);
    return high < prime_ ? sum : static_cast<Wide>(high % prime_) << 64 | static_cast<Residue>(sum);
  }
  Residue power(Residue base, std::uint64_t exponent) const;
  /// Power root ** exponent.
  Residue power_of_root(Residue exponent) const;
  /// Inverse 1 / a; 0 for 0.
  Residue inverse(Residue a) const { return power(a, prime_ - 2); }
  /// Pseudorandom function of `a`, selected by `key`.
  Residue random(std::uint64_t key, Residue a) const {
    return static_cast<Residue>((static_cast<Wide>(mix(key, a)) * prime_) >> 64);
  }
  Residue random(std::uint64_t key, Parity parity, Residue a) const {
    if (parity == Parity::kNone) return random(key, a);
    const Residue opposite = negate(a);
    if (a <= opposite) return parity == Parity::kOdd && a == 0 ? 0 : random(key, a);
    return parity == Parity::kOdd ? negate(random(key, opposite)) : random(key, opposite);
  }
  /// True for squares, including 0.
  bool is_square(Residue a) const { return a == 0 || power(a, (prime_ - 1) / 2) == 1; }

 private:
  static constexpr int kWindows = 8;
  Residue prime_;
  Residue inverse_;       ///< Inverse of prime_ modulo 2 ** 64.
  Residue power_of_two_;  ///< Constant 2 ** 64 modulo prime_.
  Residue square_;        ///< Constant 2 ** 128 modulo prime_.
  /// Powers of the root by bytes of the exponent, prepared.
  std::vector<std::array<Residue, 256>> powers_;
};

/// Position of a residue in the order that comparisons follow: fractions of small numbers by size, all
/// others pseudorandom with odd symmetry, squares above zero (where -1 is not a square).
double order_key(const Field& field, std::uint64_t key, Residue a);

/// A fraction of small numbers.
struct Small {
  std::int64_t numerator = 0;
  std::int64_t denominator = 0;  ///< Denominator; 0 if no fraction of small numbers gives the residue.
};
Small small_fraction(const Field& field, Residue a);

}  // namespace popsr::fields
