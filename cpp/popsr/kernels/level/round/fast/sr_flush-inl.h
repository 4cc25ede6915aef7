// Stores of a finished tile to memory: through the caches, or around them if it is not read soon.
#pragma once

#include "popsr/kernels/level/common-inl.h"

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace popsr::kernels {
namespace {

#if defined(__SSE2__)

/// Number of elements to write before `out` is at the start of a cache line.
inline std::int64_t until_aligned(const void* out, std::int64_t element_size) {
  const auto past = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(out) % 64);
  return past == 0 || past % element_size != 0 ? 0 : (64 - past) / element_size;
}

inline bool can_stream(const void* out, std::int64_t bytes, bool stream) {
  return stream && bytes % 64 == 0 && reinterpret_cast<std::uintptr_t>(out) % 64 == 0;
}
inline void flush_tile(void* out, const void* tile, std::int64_t bytes, bool stream) {
  if (!can_stream(out, bytes, stream)) {
    __builtin_memcpy(out, tile, static_cast<std::size_t>(bytes));
    return;
  }
#if defined(__AVX512F__)
  auto* to = static_cast<__m512i*>(out);
  const auto* from = static_cast<const __m512i*>(tile);
  for (std::int64_t i = 0; i < bytes / 64; ++i) _mm512_stream_si512(to + i, _mm512_load_si512(from + i));
#elif defined(__AVX__)
  auto* to = static_cast<__m256i*>(out);
  const auto* from = static_cast<const __m256i*>(tile);
  for (std::int64_t i = 0; i < bytes / 32; ++i) _mm256_stream_si256(to + i, _mm256_load_si256(from + i));
#else
  auto* to = static_cast<__m128i*>(out);
  const auto* from = static_cast<const __m128i*>(tile);
  for (std::int64_t i = 0; i < bytes / 16; ++i) _mm_stream_si128(to + i, _mm_load_si128(from + i));
#endif
}

/// Makes streamed stores visible to other threads.
inline void finish_stream() { _mm_sfence(); }

#else

inline std::int64_t until_aligned(const void*, std::int64_t) { return 0; }
inline bool can_stream(const void*, std::int64_t, bool) { return false; }
inline void flush_tile(void* out, const void* tile, std::int64_t bytes, bool) {
  __builtin_memcpy(out, tile, static_cast<std::size_t>(bytes));
}
inline void finish_stream() {}

#endif

}  // namespace
}  // namespace popsr::kernels
