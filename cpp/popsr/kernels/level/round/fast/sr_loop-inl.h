// Loop of every fast kernel, over one tile: results to a buffer, and whether any of them is hard.
//
// A Step has, for one element, guess(x, y, noise), where noise is the first 16 bits of U, or, if the step is
// kEven, a coin that is 1 where U < 2^63. It runs in the rounding mode that its kernel needs, which is why
// the loops are functions of their own: nothing may move across the change of mode.
#pragma once

#include "popsr/kernels/level/round/exact/sr_expand-inl.h"
#include "popsr/kernels/level/round/fast/sr_guess-inl.h"
#include "popsr/kernels/level/round/fast/sr_operand-inl.h"

namespace popsr::kernels {
namespace {

/// Step x + y, or x alone, towards zero; results of 16 bits.
template <class Out, class FromX, class FromY, bool kSum, bool kEvenChance>
struct TruncatedStep {
  static constexpr bool kEven = kEvenChance;
  using To = Out;
  using X = FromX;
  using Y = FromY;
  using Word = std::uint32_t;
  using Mode = TowardZero;
  /// True if the cut-off part matters beyond the bits of t: it does for a coin, and if t knows few bits of p.
  static constexpr bool kNeedsRest = kEven || Out::kKnownBits < 16;

  [[gnu::always_inline]] static SrGuess<Word> rounded(float t, Word rest, Word noise) {
    if constexpr (kEven) {
      return To::even_chance(t, rest, noise);
    } else {
      return To::guess(t, rest, noise);
    }
  }
  [[gnu::always_inline]] static SrGuess<Word> guess(typename X::Bits x, typename Y::Bits y, Word flip,
                                                    Word noise) {
    const float a = X::value(x, 0);
    const float b = kSum ? Y::value(y, flip) : 0.0F;
    const float t = kSum ? truncated_sum(a, b) : a;
    const Word rest = !kSum ? 0U : (kNeedsRest ? has_rest(t, a, b) : 1U);
    SrGuess<Word> guess = rounded(t, rest, noise);
    if constexpr (X::kHidesSpecials) {
      const Word operand = X::size(x) > Y::size(y) ? X::size(x) : Y::size(y);
      guess.size = guess.size > operand ? guess.size : operand;
    }
    return guess;
  }
};

/// The default rounding mode.
struct ToNearest {};

/// Step x + y, or x alone, where y is the residual of x; see SrCall::residual. Infinities, NaNs and
/// numbers that are too large come out right, so that only ties are hard.
template <class Out, class Format, bool kSum>
struct ResidualStep {
  static constexpr bool kEven = false;
  using To = Out;
  using X = FromF32;
  using Y = FromF32;
  using Word = std::uint32_t;
  using Mode = ToNearest;

  [[gnu::always_inline]] static SrGuess<Word> guess(Word x, Word y, Word, Word noise) {
    const float hi = from_bits(x);
    const Guess guess = Format::guess(magnitude_of(hi, kSum ? from_bits(y) : 0.0F), noise);
    return {sign_16(hi) | guess.bits, guess.tie ^ 1U, 0};
  }
};

/// Step x + y with the error of the sum.
template <class Out, class From, bool kEvenChance>
struct PairedStep {
  static constexpr bool kEven = kEvenChance;
  using To = Out;
  using X = From;
  using Y = From;
  using Word = typename From::Bits;
  using Mode = ToNearest;

  [[gnu::always_inline]] static SrGuess<Word> guess(Word x, Word y, Word flip, Word noise) {
    const auto pair = sum_of(From::value(x, 0), From::value(y, flip));
    if constexpr (kEven) {
      return To::even_chance(pair, noise);
    } else {
      return To::guess(pair, noise);
    }
  }
};

/// Step s*x + y in float64, `flip` being the bits of s: the error of the sum is rounded to odd, so that its
/// first bits are right. Exponents for which an error term could be lost are hard.
struct AxpyStep {
  static constexpr bool kEven = false;
  using To = ToF64;
  using X = FromF64;
  using Y = FromF64;
  using Word = std::uint64_t;
  using Mode = ToNearest;

  [[gnu::always_inline]] static SrGuess<Word> guess(Word x, Word y, Word scalar, Word noise) {
    const double s = from_bits(scalar);
    const DoubleDouble product = exact_product(s, from_bits(x));
    const DoubleDouble high = two_sum(product.hi, from_bits(y));
    const DoubleDouble low = two_sum(high.lo, product.lo);
    const DoubleDouble sum = two_sum(high.hi, low.hi);
    const DoubleDouble rest = two_sum(sum.lo, low.lo);
    // If nothing is added, high has the sign of a zero.
    const double hi = low.hi == 0 ? high.hi : sum.hi;
    SrGuess<Word> guess = To::guess({hi, to_odd(rest.hi, rest.lo)}, noise);
    const Word extreme = out_of_range<300>(s) | out_of_range<300>(from_bits(x)) | too_large(from_bits(y));
    guess.size |= 0 - extreme;
    return guess;
  }
};

/// Runs a step over a tile; `noise(i)` gives the bits of U that the step compares, or its coin.
template <class Step, class Noise>
[[gnu::always_inline]] inline bool step_tile(typename Step::To::Bits* out, const typename Step::X::Bits* x,
                                             const typename Step::Y::Bits* y, typename Step::Word flip,
                                             const Noise& noise, std::int64_t n) {
  using Word = typename Step::Word;
  Word least = ~Word{0};
  Word most = 0;
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) {
    const SrGuess<Word> guess = Step::guess(x[i], y[i], flip, noise(i));
    out[i] = static_cast<typename Step::To::Bits>(guess.bits);
    least = guess.difference < least ? guess.difference : least;
    most = guess.size > most ? guess.size : most;
  }
  return least == 0 || most > Step::To::kLimit;
}

/// Redoes the elements of a tile that the fast path cannot decide.
template <class Step, class Noise>
[[gnu::always_inline]] inline void mark_tile(std::uint8_t* hard, const typename Step::X::Bits* x,
                                             const typename Step::Y::Bits* y, typename Step::Word flip,
                                             const Noise& noise, std::int64_t n) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) {
    const auto guess = Step::guess(x[i], y[i], flip, noise(i));
    hard[i] =
        static_cast<std::uint8_t>((guess.difference == 0 ? 1 : 0) | (guess.size > Step::To::kLimit ? 1 : 0));
  }
}

/// Buffers of one kernel call.
template <class Step>
struct FastTile {
  using Bits = typename Step::To::Bits;
  static constexpr std::int64_t kElements = fast_tile<Bits>();
  alignas(64) Bits out[kElements];
  alignas(64) std::uint8_t hard[kElements];
};

}  // namespace
}  // namespace popsr::kernels
