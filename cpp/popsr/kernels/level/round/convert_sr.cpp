// Stochastic narrowing: S = hi + lo exactly; away from zero iff U / 2^64 < p, p = (|S| - |toward|) / (|away|
// - |toward|). Word 0 of U decides against the first 16 bits of p except on a tie, which the exact slow path
// settles.
#include "popsr/kernels/level/convert/convert.h"
#include "popsr/kernels/level/noise/ars.h"
#include "popsr/kernels/level/round/narrow_sr-inl.h"

namespace popsr::kernels {
namespace {

/// v / 2^64 < fraction, where fraction belongs to (m, lo); see Magnitude.
inline bool below_fraction(std::uint64_t v, Magnitude m, float lo) {
  if (m.inexact == 0) return false;
  const std::uint32_t exponent = m.bits >> 23;
  // 2^64 / ulp = 2^(64 + 150 - e); the product is exact: 24 bits and no exponent near the limits of double.
  const std::uint64_t scale_exponent = 1023U + 64U + 150U - (exponent == 0 ? 1U : exponent);
  const double scaled = static_cast<double>(magnitude(lo)) * from_bits(scale_exponent << 52);
  if (scaled >= 0x1p64) return m.inward == 0;
  const std::uint64_t whole = static_cast<std::uint64_t>(scaled);
  if (m.inward != 0) return whole == 0 || v < 0 - whole;  // v < 2^64 - scaled
  return v < whole || (v == whole && static_cast<double>(whole) < scaled);
}

/// U / 2^64 < (r + fraction) / 2^shift, where r are the low `shift` bits of the significand.
inline bool goes_away(std::uint64_t u, Magnitude m, float lo, std::uint32_t significand,
                      std::uint32_t shift) {
  if (shift < 64) {
    const std::uint64_t whole = u >> (64 - shift);
    const std::uint64_t r = significand & ((1ULL << shift) - 1);
    return whole < r || (whole == r && below_fraction(u << shift, m, lo));
  }
  // U 2^(shift - 64) is an integer, to compare with significand + fraction < 2^24.
  if (u == 0) return significand != 0 || m.inexact != 0;
  if (shift - 64 > 24 || u > 0xffffffU) return false;
  const std::uint64_t whole = u << (shift - 64);
  return whole < significand || (whole == significand && m.inexact != 0);
}

struct SrBf16 : GuessBf16 {
  static std::uint32_t exact(Magnitude m, float lo, std::uint64_t u) {
    return (m.bits >> 16) + (goes_away(u, m, lo, m.bits, 16) ? 1U : 0U);
  }
};

struct SrF16 : GuessF16 {
  static std::uint32_t exact(Magnitude m, float lo, std::uint64_t u) {
    const std::uint32_t exponent = m.bits >> 23;
    const std::uint32_t fraction = m.bits & 0x7fffffU;
    const std::uint32_t significand = exponent == 0 ? fraction : fraction | 0x800000U;
    if (exponent >= 113) {
      return (m.bits >> 13) - (112U << 10) + (goes_away(u, m, lo, significand, 13) ? 1U : 0U);
    }
    const std::uint32_t shift = 126U - (exponent == 0 ? 1U : exponent);
    const std::uint32_t toward = shift < 24 ? significand >> shift : 0;
    return toward + (goes_away(u, m, lo, significand, shift) ? 1U : 0U);
  }
};

/// The guesses of one chunk; true if any of them is a tie. The two loops differ in lo only.
template <class Format>
bool guess_chunk(std::uint16_t* out, const float* hi, const float* lo, const std::uint16_t* words,
                 std::int64_t n) {
  std::uint32_t ties = 0;
  if (lo == nullptr) {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < n; ++i) {
      const Guess guess = Format::guess(magnitude_of(hi[i], 0.0F), words[i]);
      ties |= guess.tie;
      out[i] = static_cast<std::uint16_t>(sign_16(hi[i]) | guess.bits);
    }
    return ties != 0;
  }
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) {
    const Guess guess = Format::guess(magnitude_of(hi[i], lo[i]), words[i]);
    ties |= guess.tie;
    out[i] = static_cast<std::uint16_t>(sign_16(hi[i]) | guess.bits);
  }
  return ties != 0;
}

/// Redoes the ties of one chunk. Pieces without one are skipped at vector speed: a chunk has one tie, rarely
/// more.
template <class Format>
[[gnu::noinline]] void settle_ties(std::uint16_t* out, const float* hi, const float* lo,
                                   const std::uint16_t* words, std::int64_t n, NoiseKey key,
                                   std::uint64_t first) {
  constexpr std::int64_t kPiece = 32;
  std::uint16_t again[kPiece];
  for (std::int64_t start = 0; start < n; start += kPiece) {
    const std::int64_t count = n - start < kPiece ? n - start : kPiece;
    const float* rests = lo == nullptr ? nullptr : lo + start;
    if (!guess_chunk<Format>(again, hi + start, rests, words + start, count)) continue;
    for (std::int64_t i = start; i < start + count; ++i) {
      const float rest = lo == nullptr ? 0.0F : lo[i];
      const Magnitude m = magnitude_of(hi[i], rest);
      if (Format::guess(m, words[i]).tie == 0) continue;
      const std::uint64_t u = noise_of(first + static_cast<std::uint64_t>(i), key);
      out[i] = static_cast<std::uint16_t>(sign_16(hi[i]) | Format::exact(m, rest, u));
    }
  }
}

template <class Format>
void narrow_sr(std::uint16_t* out, const float* hi, const float* lo, std::int64_t n, NoiseKey key,
               std::uint64_t first) {
  constexpr std::int64_t kChunk = 256;
  std::uint16_t words[kChunk + 8];
  for (std::int64_t done = 0; done < n; done += kChunk) {
    const std::int64_t count = n - done < kChunk ? n - done : kChunk;
    const std::uint64_t element = first + static_cast<std::uint64_t>(done);
    const std::int64_t skip = static_cast<std::int64_t>(element % 8);
    noise_words(words, (skip + count + 7) / 8, element / 8, 0, key);
    const float* rest = lo == nullptr ? nullptr : lo + done;
    if (guess_chunk<Format>(out + done, hi + done, rest, words + skip, count)) {
      settle_ties<Format>(out + done, hi + done, rest, words + skip, count, key, element);
    }
  }
}

}  // namespace

void narrow_sr_f16(std::uint16_t* out, const float* hi, const float* lo, std::int64_t n, NoiseKey key,
                   std::uint64_t first) {
  narrow_sr<SrF16>(out, hi, lo, n, key, first);
}
void narrow_sr_bf16(std::uint16_t* out, const float* hi, const float* lo, std::int64_t n, NoiseKey key,
                    std::uint64_t first) {
  narrow_sr<SrBf16>(out, hi, lo, n, key, first);
}

}  // namespace popsr::kernels
