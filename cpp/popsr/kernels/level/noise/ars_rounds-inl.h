// One AES round on one block, in hardware or in software.
#pragma once

#include "popsr/kernels/level/common-inl.h"

#if defined(__AES__)
#include <immintrin.h>
#endif

namespace popsr::kernels {
namespace {

inline constexpr int kArsRounds = 7;
inline constexpr std::uint64_t kWeylLo = 0x9E3779B97F4A7C15ULL;  // golden ratio
inline constexpr std::uint64_t kWeylHi = 0xBB67AE8584CAA73BULL;  // sqrt(3) - 1

#if defined(__AES__)

struct Block {
  __m128i value;
};
[[gnu::always_inline]] inline Block make_block(std::uint64_t lo, std::uint64_t hi) {
  return {_mm_set_epi64x(static_cast<long long>(hi), static_cast<long long>(lo))};
}
[[gnu::always_inline]] inline Block exclusive_or(Block a, Block b) {
  return {_mm_xor_si128(a.value, b.value)};
}
[[gnu::always_inline]] inline Block aes_round(Block a, Block key) {
  return {_mm_aesenc_si128(a.value, key.value)};
}
[[gnu::always_inline]] inline Block aes_last_round(Block a, Block key) {
  return {_mm_aesenclast_si128(a.value, key.value)};
}

#else

/// State of four columns; byte r of a column (from the low end) is row r of the AES state.
struct Block {
  std::uint32_t column[4];
};
inline Block make_block(std::uint64_t lo, std::uint64_t hi) {
  return {{static_cast<std::uint32_t>(lo), static_cast<std::uint32_t>(lo >> 32),
           static_cast<std::uint32_t>(hi), static_cast<std::uint32_t>(hi >> 32)}};
}
inline Block exclusive_or(Block a, Block b) {
  for (int i = 0; i < 4; ++i) a.column[i] ^= b.column[i];
  return a;
}

/// S-box, and for each byte of row 0 the column (2s, s, s, 3s) that SubBytes and MixColumns make of it.
struct AesTables {
  std::uint8_t sbox[256] = {};
  std::uint32_t mixed[256] = {};
};
constexpr std::uint32_t times_two(std::uint32_t x) { return ((x << 1) ^ ((x >> 7) * 0x11bU)) & 0xffU; }
constexpr AesTables make_aes_tables() {
  AesTables tables;
  std::uint32_t power = 1;    // 3^i
  std::uint32_t inverse = 1;  // 3^-i
  for (int i = 0; i < 256; ++i) {
    std::uint32_t s = 0x63U ^ inverse;
    for (int turn = 1; turn <= 4; ++turn) s ^= ((inverse << turn) | (inverse >> (8 - turn))) & 0xffU;
    tables.sbox[power] = static_cast<std::uint8_t>(s);
    power ^= times_two(power);
    // Division by 3 is multiplication by 0xf6, done as (1 + x)(1 + x^2)(1 + x^4) and a reduction.
    inverse ^= inverse << 1;
    inverse ^= inverse << 2;
    inverse ^= inverse << 4;
    inverse &= 0xffU;
    inverse ^= (inverse >> 7) * 0x09U;
  }
  tables.sbox[0] = 0x63;
  for (int i = 0; i < 256; ++i) {
    const std::uint32_t s = tables.sbox[i];
    tables.mixed[i] = times_two(s) | (s << 8) | (s << 16) | ((times_two(s) ^ s) << 24);
  }
  return tables;
}
constexpr AesTables kAes = make_aes_tables();

inline std::uint32_t row_of(const Block& block, int column, int row) {
  return (block.column[column & 3] >> (8 * row)) & 0xffU;
}
inline std::uint32_t rotate_left(std::uint32_t x, int bits) {
  return (x << bits) | (x >> ((32 - bits) & 31));
}

inline Block aes_round(const Block& a, const Block& key) {
  Block out = key;
  for (int column = 0; column < 4; ++column) {
    for (int row = 0; row < 4; ++row) {
      out.column[column] ^= rotate_left(kAes.mixed[row_of(a, column + row, row)], 8 * row);
    }
  }
  return out;
}
inline Block aes_last_round(const Block& a, const Block& key) {
  Block out = key;
  for (int column = 0; column < 4; ++column) {
    for (int row = 0; row < 4; ++row) {
      out.column[column] ^= static_cast<std::uint32_t>(kAes.sbox[row_of(a, column + row, row)]) << (8 * row);
    }
  }
  return out;
}

#endif

/// Round keys 0 .. 7.
struct ArsSchedule {
  Block key[kArsRounds + 1];
};
inline ArsSchedule ars_schedule(NoiseKey key) {
  ArsSchedule schedule;
  for (int round = 0; round <= kArsRounds; ++round) {
    schedule.key[round] = make_block(key.lo, key.hi);
    key.lo += kWeylLo;
    key.hi += kWeylHi;
  }
  return schedule;
}
[[gnu::always_inline]] inline Block ars_encrypt(Block counter, const ArsSchedule& schedule) {
  Block v = exclusive_or(counter, schedule.key[0]);
  for (int round = 1; round < kArsRounds; ++round) v = aes_round(v, schedule.key[round]);
  return aes_last_round(v, schedule.key[kArsRounds]);
}

}  // namespace
}  // namespace popsr::kernels
