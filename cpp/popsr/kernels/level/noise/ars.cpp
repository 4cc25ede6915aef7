#include "popsr/kernels/level/noise/ars.h"

#include "popsr/kernels/level/noise/ars_rounds-inl.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace popsr::kernels {
namespace {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the word layout of the noise is little-endian");

#if defined(__VAES__) && defined(__AVX512F__)

/// 4 * kGroups blocks at once, four to a register; kGroups independent chains hide the latency of a round.
template <int kGroups>
[[gnu::always_inline]] inline void encrypt_wide(std::uint16_t* out, std::uint64_t first, std::uint64_t word,
                                                const __m512i* keys) {
  const long long w = static_cast<long long>(word);
  __m512i v[kGroups];
  const __m512i start =
      _mm512_add_epi64(_mm512_set_epi64(w, 3, w, 2, w, 1, w, 0),
                       _mm512_maskz_set1_epi64(static_cast<__mmask8>(0x55), static_cast<long long>(first)));
  for (int g = 0; g < kGroups; ++g) {
    const __m512i step = _mm512_maskz_set1_epi64(static_cast<__mmask8>(0x55), 4LL * g);
    v[g] = _mm512_xor_si512(_mm512_add_epi64(start, step), keys[0]);
  }
  for (int round = 1; round < kArsRounds; ++round) {
    for (int g = 0; g < kGroups; ++g) v[g] = _mm512_aesenc_epi128(v[g], keys[round]);
  }
  for (int g = 0; g < kGroups; ++g) {
    _mm512_storeu_si512(out + 32 * g, _mm512_aesenclast_epi128(v[g], keys[kArsRounds]));
  }
}

/// Returns how many blocks were written; the caller does the rest.
std::int64_t wide_noise_words(std::uint16_t* out, std::int64_t blocks, std::uint64_t first,
                              std::uint64_t word, const ArsSchedule& schedule) {
  __m512i keys[kArsRounds + 1];
  for (int round = 0; round <= kArsRounds; ++round) {
    // The masked form, because GCC warns about the undefined operand inside the plain one.
    keys[round] = _mm512_maskz_broadcast_i32x4(static_cast<__mmask16>(0xffff), schedule.key[round].value);
  }
  std::int64_t j = 0;
  for (; j + 32 <= blocks; j += 32)
    encrypt_wide<8>(out + 8 * j, first + static_cast<std::uint64_t>(j), word, keys);
  for (; j + 4 <= blocks; j += 4)
    encrypt_wide<1>(out + 8 * j, first + static_cast<std::uint64_t>(j), word, keys);
  return j;
}

#elif defined(__x86_64__)

#if defined(__AES__)
constexpr bool has_aes() { return true; }
#else
/// Most processors that run level v2 have the instructions, which it does not ask for.
bool has_aes() {
  static const bool found = [] {
    unsigned a = 1, b = 0, c = 0, d = 0;  // leaf 1, which every x86-64 has; bit 25 of ecx
    __asm__("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
    return ((c >> 25) & 1U) != 0;
  }();
  return found;
}
#endif

/// Eight blocks at once, whose chains hide the latency of a round.
__attribute__((target("aes"))) std::int64_t encrypt_eights(std::uint16_t* out, std::int64_t blocks,
                                                           std::uint64_t first, std::uint64_t word,
                                                           const ArsSchedule& schedule) {
  constexpr int kChains = 8;
  __m128i keys[kArsRounds + 1];
  static_assert(sizeof(keys) == sizeof(schedule.key));
  __builtin_memcpy(keys, schedule.key, sizeof(keys));
  std::int64_t j = 0;
  for (; j + kChains <= blocks; j += kChains) {
    __m128i v[kChains];
    for (int c = 0; c < kChains; ++c) {
      const auto counter = static_cast<long long>(first + static_cast<std::uint64_t>(j + c));
      v[c] = _mm_xor_si128(_mm_set_epi64x(static_cast<long long>(word), counter), keys[0]);
    }
    for (int round = 1; round < kArsRounds; ++round) {
      for (int c = 0; c < kChains; ++c) v[c] = _mm_aesenc_si128(v[c], keys[round]);
    }
    for (int c = 0; c < kChains; ++c) {
      const __m128i last = _mm_aesenclast_si128(v[c], keys[kArsRounds]);
      __builtin_memcpy(out + 8 * (j + c), &last, sizeof(last));
    }
  }
  return j;
}

std::int64_t wide_noise_words(std::uint16_t* out, std::int64_t blocks, std::uint64_t first,
                              std::uint64_t word, const ArsSchedule& schedule) {
  return has_aes() ? encrypt_eights(out, blocks, first, word, schedule) : 0;
}

#else

std::int64_t wide_noise_words(std::uint16_t*, std::int64_t, std::uint64_t, std::uint64_t,
                              const ArsSchedule&) {
  return 0;
}

#endif

}  // namespace

NoiseKey ars7(std::uint64_t counter_lo, std::uint64_t counter_hi, NoiseKey key) {
  const Block out = ars_encrypt(make_block(counter_lo, counter_hi), ars_schedule(key));
  std::uint64_t halves[2];
  __builtin_memcpy(halves, &out, sizeof(halves));
  return {halves[0], halves[1]};
}

void noise_words(std::uint16_t* out, std::int64_t blocks, std::uint64_t first_block, std::uint64_t word,
                 NoiseKey key) {
  const ArsSchedule schedule = ars_schedule(key);
  for (std::int64_t j = wide_noise_words(out, blocks, first_block, word, schedule); j < blocks; ++j) {
    const Block last = ars_encrypt(make_block(first_block + static_cast<std::uint64_t>(j), word), schedule);
    __builtin_memcpy(out + 8 * j, &last, sizeof(last));
  }
}

std::uint64_t noise_of(std::uint64_t element, NoiseKey key) {
  std::uint64_t u = 0;
  for (std::uint64_t word = 0; word < 4; ++word) {
    const NoiseKey block = ars7(element / 8, word, key);
    const std::uint64_t half = element % 8 < 4 ? block.lo : block.hi;
    u = (u << 16) | ((half >> (16 * (element % 4))) & 0xffffU);
  }
  return u;
}

void uniform_bits(std::uint64_t* out, std::int64_t n, NoiseKey key, std::uint64_t first) {
  constexpr std::int64_t kChunk = 256;
  std::uint16_t words[4][kChunk + 8];
  for (std::int64_t done = 0; done < n; done += kChunk) {
    const std::int64_t count = n - done < kChunk ? n - done : kChunk;
    const std::uint64_t element = first + static_cast<std::uint64_t>(done);
    const std::int64_t skip = static_cast<std::int64_t>(element % 8);
    for (std::uint64_t d = 0; d < 4; ++d) noise_words(words[d], (skip + count + 7) / 8, element / 8, d, key);
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t j = skip + i;
      out[done + i] = (static_cast<std::uint64_t>(words[0][j]) << 48) |
                      (static_cast<std::uint64_t>(words[1][j]) << 32) |
                      (static_cast<std::uint64_t>(words[2][j]) << 16) | words[3][j];
    }
  }
}

}  // namespace popsr::kernels
