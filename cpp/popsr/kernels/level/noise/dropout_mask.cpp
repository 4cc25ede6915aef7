#include "popsr/kernels/level/noise/dropout_mask.h"

#include "popsr/kernels/level/common-inl.h"
#include "popsr/kernels/level/noise/ars.h"

namespace popsr::kernels {
namespace {

/// Elements whose words stay in the first level of cache; a multiple of a block.
constexpr std::int64_t kChunk = 1024;

/// Without branches at every level: the bits of a product, or none.
template <class T, class Word>
[[gnu::always_inline]] inline void keep_scaled(T* out, const T* in, const std::uint8_t* kept, std::int64_t n,
                                               T scale) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) {
    const T product = in[i] * scale;
    Word bits;
    __builtin_memcpy(&bits, &product, sizeof(bits));
    bits &= Word{0} - Word{kept[i]};
    __builtin_memcpy(out + i, &bits, sizeof(bits));
  }
}

/// kept[i] = words[i] > top; true if a word equals it, whose elements are then decided by their other bits.
bool compare_words(std::uint8_t* kept, const std::uint16_t* words, std::int64_t n, std::uint16_t top) {
  std::uint16_t tied = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    kept[i] = words[i] > top ? 1 : 0;
    tied = static_cast<std::uint16_t>(tied | (words[i] == top ? 1 : 0));
  }
  return tied != 0;
}

}  // namespace

void keep_mask(std::uint8_t* kept, std::int64_t n, NoiseKey key, std::uint64_t first,
               std::uint64_t threshold) {
  const auto top = static_cast<std::uint16_t>(threshold >> 48);
  alignas(64) std::uint16_t words[kChunk + 8];
  for (std::int64_t done = 0; done < n; done += kChunk) {
    const std::int64_t count = n - done < kChunk ? n - done : kChunk;
    const std::uint64_t element = first + static_cast<std::uint64_t>(done);
    const auto skip = static_cast<std::int64_t>(element % 8);
    noise_words(words, (skip + count + 7) / 8, element / 8, 0, key);
    if (!compare_words(kept + done, words + skip, count, top)) continue;
    for (std::int64_t i = 0; i < count; ++i) {
      if (words[skip + i] != top) continue;
      kept[done + i] = noise_of(element + static_cast<std::uint64_t>(i), key) >= threshold ? 1 : 0;
    }
  }
}

void keep_scaled_f32(float* out, const float* in, const std::uint8_t* kept, std::int64_t n, float scale) {
  keep_scaled<float, std::uint32_t>(out, in, kept, n, scale);
}

void keep_scaled_f64(double* out, const double* in, const std::uint8_t* kept, std::int64_t n, double scale) {
  keep_scaled<double, std::uint64_t>(out, in, kept, n, scale);
}

}  // namespace popsr::kernels
