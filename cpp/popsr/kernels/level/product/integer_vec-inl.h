// Vectors of products of bytes, one set per instruction-set level.
//
// A step multiplies groups of kGroup neighbours of a row of the left operand with those of kLanes columns of
// the right one, and adds each group's products to a lane of 32 bits. Elements are packed as Left and Right:
// bytes, unsigned and signed, if the level multiplies such (AVX-512 VNNI), otherwise words of 16 bits, whose
// products are exact. Sums wrap, so their order does not change a bit.
#pragma once

#include <cstdint>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#define POPSR_INLINE __attribute__((always_inline)) inline

namespace popsr::kernels {
namespace {

/// Vectors of one level; kRows x kVecs vectors of sums are kept in registers.
template <int Bytes>
struct IntegerVec {
  static constexpr int kLanes = Bytes / 4;
  typedef std::uint32_t V __attribute__((vector_size(Bytes)));
  typedef std::uint32_t Unaligned __attribute__((vector_size(Bytes), aligned(1), may_alias));
  typedef std::uint32_t Group __attribute__((aligned(1), may_alias));

  static POPSR_INLINE V load(const void* p) { return *static_cast<const Unaligned*>(p); }
  static POPSR_INLINE void store(void* p, V x) { *static_cast<Unaligned*>(p) = x; }
  static POPSR_INLINE V splat(std::uint32_t x) { return x - V{}; }
  static POPSR_INLINE V group(const void* p) { return splat(*static_cast<const Group*>(p)); }
};

#if defined(__AVX512VNNI__)

struct Integers : IntegerVec<64> {
  using Left = std::uint8_t;
  using Right = std::int8_t;
  static constexpr int kGroup = 4, kRows = 6, kVecs = 4;
  static POPSR_INLINE V add_products(V sum, V left, V right) {
    return reinterpret_cast<V>(_mm512_dpbusd_epi32(
        reinterpret_cast<__m512i>(sum), reinterpret_cast<__m512i>(left), reinterpret_cast<__m512i>(right)));
  }
};

#else

#if defined(__AVX2__)
struct Integers : IntegerVec<32> {
  static constexpr int kRows = 6, kVecs = 2;
  static POPSR_INLINE V products(V left, V right) {
    return reinterpret_cast<V>(
        _mm256_madd_epi16(reinterpret_cast<__m256i>(left), reinterpret_cast<__m256i>(right)));
  }
#elif defined(__SSE2__)
struct Integers : IntegerVec<16> {
  static constexpr int kRows = 6, kVecs = 2;
  static POPSR_INLINE V products(V left, V right) {
    return reinterpret_cast<V>(
        _mm_madd_epi16(reinterpret_cast<__m128i>(left), reinterpret_cast<__m128i>(right)));
  }
#else
struct Integers : IntegerVec<16> {
  static constexpr int kRows = 4, kVecs = 2;
  static POPSR_INLINE V products(V left, V right) {
    typedef std::int16_t Words __attribute__((vector_size(16)));
    const Words a = reinterpret_cast<Words>(left), b = reinterpret_cast<Words>(right);
    V sums = {};
    for (int i = 0; i < 4; ++i) {
      sums[i] = static_cast<std::uint32_t>(a[2 * i] * b[2 * i] + a[2 * i + 1] * b[2 * i + 1]);
    }
    return sums;
  }
#endif
  using Left = std::int16_t;
  using Right = std::int16_t;
  static constexpr int kGroup = 2;
  static POPSR_INLINE V add_products(V sum, V left, V right) { return sum + products(left, right); }
};

#endif

}  // namespace
}  // namespace popsr::kernels
