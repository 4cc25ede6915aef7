// U of the value form: a hash of the key and of the bits of both operands. It is symmetric, because it sees
// the lesser and the greater; every bit of an operand changes every bit of U half of the time.
//
// Multiply and xor-shift finalisers (A. Appleby, MurmurHash3; constants of C. Wellons's hash prospector for
// 32 bits and of D. Stafford's Mix13 for 64).
#pragma once

#include "popsr/kernels/level/convert/formats-inl.h"

namespace popsr::kernels {
namespace {

[[gnu::always_inline]] inline std::uint32_t finalise_32(std::uint32_t h) {
  h ^= h >> 16;
  h *= 0x21f0aaadU;
  h ^= h >> 15;
  h *= 0xd35a2d97U;
  return h ^ (h >> 15);
}

[[gnu::always_inline]] inline std::uint64_t finalise_64(std::uint64_t h) {
  h ^= h >> 30;
  h *= 0xbf58476d1ce4e5b9ULL;
  h ^= h >> 27;
  h *= 0x94d049bb133111ebULL;
  return h ^ (h >> 31);
}

/// First 16 bits of U, for operands of at most 16 bits: twice as many fit a vector as of the rest.
[[gnu::always_inline]] inline std::uint16_t hash_first(std::uint16_t x, std::uint16_t y, std::uint64_t key) {
  const auto multiply = [](std::uint16_t a, unsigned b) { return static_cast<std::uint16_t>(a * b); };
  const auto xor_shift = [](std::uint16_t a, int shift) {
    return static_cast<std::uint16_t>(a ^ (a >> shift));
  };
  const std::uint16_t least = x < y ? x : y;
  const std::uint16_t most = x < y ? y : x;
  std::uint16_t h = xor_shift(multiply(static_cast<std::uint16_t>(least ^ key), 0x9e3bU), 8);
  h = static_cast<std::uint16_t>(static_cast<std::uint16_t>(h + most) ^ (key >> 16));
  h = multiply(xor_shift(h, 8), 0x88b5U);
  h = multiply(xor_shift(h, 7), 0xdb2dU);
  h = multiply(xor_shift(h, 7), 0x9a65U);
  return xor_shift(h, 8);
}

/// Further 32 bits of U.
[[gnu::always_inline]] inline std::uint32_t hash_rest(std::uint32_t x, std::uint32_t y, std::uint64_t key) {
  const std::uint32_t least = x < y ? x : y;
  const std::uint32_t most = x < y ? y : x;
  return finalise_32(finalise_32(((least << 16) | most) ^ static_cast<std::uint32_t>(key)) +
                     static_cast<std::uint32_t>(key >> 32));
}

/// Upper or, by the other half of the key, lower 32 bits of U, for 32-bit operands.
[[gnu::always_inline]] inline std::uint32_t hash_32(std::uint32_t x, std::uint32_t y, std::uint64_t key) {
  const std::uint32_t least = x < y ? x : y;
  const std::uint32_t most = x < y ? y : x;
  std::uint32_t h = (least ^ static_cast<std::uint32_t>(key)) * 0x9e3779b1U;
  h ^= h >> 15;
  h = (h + most) ^ static_cast<std::uint32_t>(key >> 32);
  return finalise_32(h);
}

/// All bits of U, for 64-bit operands.
[[gnu::always_inline]] inline std::uint64_t hash_64(std::uint64_t x, std::uint64_t y, NoiseKey key) {
  const std::uint64_t least = x < y ? x : y;
  const std::uint64_t most = x < y ? y : x;
  std::uint64_t h = (least ^ key.lo) * 0x9e3779b97f4a7c15ULL;
  h ^= h >> 32;
  h = (h + most) ^ key.hi;
  return finalise_64(h);
}

/// U of one pair.
[[gnu::always_inline]] inline std::uint64_t value_noise(std::uint64_t x, std::uint64_t y, int size,
                                                        NoiseKey key) {
  if (size == 8) return hash_64(x, y, key);
  const auto a = static_cast<std::uint32_t>(x);
  const auto b = static_cast<std::uint32_t>(y);
  if (size == 4) return (static_cast<std::uint64_t>(hash_32(a, b, key.lo)) << 32) | hash_32(a, b, key.hi);
  const std::uint64_t first =
      hash_first(static_cast<std::uint16_t>(a), static_cast<std::uint16_t>(b), key.lo);
  return (first << 48) | (static_cast<std::uint64_t>(hash_rest(a, b, key.hi)) << 16) |
         (hash_rest(a, b, key.lo) & 0xffffU);
}

}  // namespace
}  // namespace popsr::kernels
