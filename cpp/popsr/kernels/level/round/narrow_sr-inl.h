// First guesses of stochastic narrowing to 16 bits, from 16 random bits: shared by narrow_sr and by the
// kernels that fuse it with an operation.
#pragma once

#include "popsr/kernels/level/convert/narrow-inl.h"

namespace popsr::kernels {
namespace {

/// First guess of one element, as magnitude bits of the format, and whether only the slow path can tell.
struct Guess {
  std::uint32_t bits;
  std::uint32_t tie;
};

/// A magnitude on the grid of a 16-bit format: the neighbour towards zero, the first 16 bits of p, those of
/// them that were looked at, and whether something is left below.
struct Split {
  std::uint32_t toward;
  std::uint32_t p;
  std::uint32_t known;
  std::uint32_t rest;

  [[gnu::always_inline]] std::uint32_t off_grid() const { return nonzero(p) | rest; }
  [[gnu::always_inline]] Guess guess(std::uint32_t word) const {
    return {toward + less(word, p), (nonzero((word ^ p) & known) ^ 1U) & rest};
  }
};

struct GuessBf16 {
  [[gnu::always_inline]] static Split split(Magnitude m) {
    return {m.bits >> 16, m.bits & 0xffffU, 0xffffU, m.inexact};
  }
  [[gnu::always_inline]] static Guess guess(Magnitude m, std::uint32_t word) {
    const Guess guess = split(m).guess(word);
    return {m.bits > kInfBits ? 0x7fc0U : guess.bits, guess.tie};
  }
};

struct GuessF16 {
  [[gnu::always_inline]] static Split split(Magnitude m) {
    const std::uint32_t a = m.bits;
    // Below 2^-14 the grid is 2^-24, whatever the exponent. Selected by mask: branches on one condition would
    // be threaded into control flow.
    const std::uint32_t tiny = 0U - less(a, 0x38800000U);
    // First 16 bits of p. Normal: 13 bits of the significand. Subnormal: fraction of x / 2^-24, exact in
    // float.
    const float scaled = from_bits(a & tiny) * 0x1p24F;
    const std::int32_t whole = static_cast<std::int32_t>(scaled);
    const float fraction = (scaled - static_cast<float>(whole)) * 65536.0F;
    const std::int32_t p_tiny = static_cast<std::int32_t>(fraction);
    const float below = fraction - static_cast<float>(p_tiny);
    return {static_cast<std::uint32_t>(whole) | (((a >> 13) - (112U << 10)) & ~tiny),
            static_cast<std::uint32_t>(p_tiny) | (((a & 0x1fffU) << 3) & ~tiny), 0xfff8U | (tiny & 7U),
            m.inexact | nonzero(bits_of(below))};
  }
  [[gnu::always_inline]] static Guess guess(Magnitude m, std::uint32_t word) {
    const std::uint32_t a = m.bits;
    const Guess guess = split(m).guess(word);
    const std::uint32_t rounded = a >= 0x47800000U ? 0x7c00U : guess.bits;
    return {a > kInfBits ? 0x7e00U : rounded, guess.tie & less(a, 0x47800000U)};
  }
};

}  // namespace
}  // namespace popsr::kernels
