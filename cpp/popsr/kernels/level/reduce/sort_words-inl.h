// Sort of a short array of different words: each word goes to the position given by the number of smaller
// ones. That takes n * n comparisons and no branch, in vectors.
#pragma once

#include "popsr/kernels/contract/kernel_table.h"
#include "popsr/kernels/level/simd/vector_types-inl.h"

namespace popsr::kernels {
namespace {

typedef std::int64_t SignedVector __attribute__((vector_size(kVectorBytes)));

inline void sort_few_words(std::uint64_t* words, std::int64_t n) {
  constexpr int kTogether = 4, kPerVector = kVectorBytes / 8, kGroup = kTogether * kPerVector;
  constexpr std::uint64_t kTop = 1ULL
                                 << 63;  // makes signed comparisons, which all levels have, unsigned ones
  alignas(64) std::int64_t own[kFewWords];
  alignas(64) std::int64_t place[kFewWords];
  for (std::int64_t i = 0; i < n; ++i) own[i] = static_cast<std::int64_t>(words[i] ^ kTop);
  for (std::int64_t i = n; i < kFewWords; ++i) own[i] = 0;
  for (std::int64_t i = 0; i < n; i += kGroup) {
    SignedVector mine[kTogether], smaller[kTogether] = {};
    __builtin_memcpy(mine, own + i, sizeof(mine));
    for (std::int64_t j = 0; j < n; ++j) {
      const SignedVector other = own[j] - SignedVector{};
      for (int k = 0; k < kTogether; ++k) smaller[k] -= other < mine[k];
    }
    __builtin_memcpy(place + i, smaller, sizeof(smaller));
  }
  for (std::int64_t i = 0; i < n; ++i) words[place[i]] = static_cast<std::uint64_t>(own[i]) ^ kTop;
}

}  // namespace
}  // namespace popsr::kernels
