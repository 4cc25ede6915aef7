// Elementwise loops on arrays of bfloat16: widened, computed in float and rounded to nearest in registers.
//
// The bits equal widening, the kernel of float and narrowing hi + lo. Sums need no lo: for operands of
// 8 bits rounding to 24 bits first changes nothing (S. A. Figueroa, "When is double rounding innocuous?",
// 1995: 24 >= 2 * 8 + 1).
#pragma once

#include "popsr/kernels/level/convert/narrow-inl.h"
#include "popsr/kernels/level/simd/vector_types-inl.h"

namespace popsr::kernels {
namespace {

typedef std::uint16_t HalfVectors __attribute__((vector_size(kVectorBytes)));

/// Packs of floats are a float type of elementwise structs.
template <>
struct Traits<FloatVector> {
  static constexpr bool kFloat = true;
  static constexpr bool kSigned = true;
};

/// Rounds to nearest even; NaN keeps its sign only.
[[gnu::always_inline]] inline std::uint16_t to_bf16(float x) {
  const std::uint32_t u = bits_of(x);
  const std::uint32_t rounded = (u + 0x7fffU + ((u >> 16) & 1U)) >> 16;
  return static_cast<std::uint16_t>(x != x ? sign_16(x) | 0x7fc0U : rounded);
}

/// Stores the words of two vectors of floats, rounded to nearest even; NaN keeps its sign only.
[[gnu::always_inline]] inline void store_bf16(std::uint16_t* to, FloatVector a, FloatVector b) {
#if defined(__AVX512BW__)
  if (_mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_UNORD_Q) == 0) {
    const auto rounded = [](FloatVector x) __attribute__((always_inline)) {
      const WordVector u = __builtin_bit_cast(WordVector, x);
      return (__m512i)(u + 0x7fffU + ((u >> 16) & 1U));
    };
    // Upper halves of all words.
    const HalfVectors halves[2] = {(HalfVectors)rounded(a), (HalfVectors)rounded(b)};
    const HalfVectors out =
        __builtin_shufflevector(halves[0], halves[1], 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29,
                                31, 33, 35, 37, 39, 41, 43, 45, 47, 49, 51, 53, 55, 57, 59, 61, 63);
    __builtin_memcpy(to, &out, sizeof(out));
    return;
  }
#endif
  const HalfVector out[2] = {floats_to_bf16(a), floats_to_bf16(b)};
  __builtin_memcpy(to, out, sizeof(out));
}

template <class Op>
void unary_bf16(void* hi, void*, const void* const* in, std::int64_t n, const double*) {
  const std::uint16_t* x = static_cast<const std::uint16_t*>(in[0]);
  std::uint16_t* out = static_cast<std::uint16_t*>(hi);
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) out[i] = to_bf16(Op::apply(bf16_to_float(x[i])));
}

/// Loop over two vectors at a time; operand 1 is an array, or one number.
template <class Op, bool kNumber>
void binary_bf16(void* hi, void*, const void* const* in, std::int64_t n, const double*) {
  constexpr std::int64_t kPerVector = kVectorBytes / 4, kStep = 2 * kPerVector;
  const std::uint16_t* x = static_cast<const std::uint16_t*>(in[0]);
  const std::uint16_t* y = static_cast<const std::uint16_t*>(in[1]);
  std::uint16_t* out = static_cast<std::uint16_t*>(hi);
  const float number = kNumber && n > 0 ? bf16_to_float(*y) : 0.0F;
  std::int64_t i = 0;
  for (; i + kStep <= n; i += kStep) {
    FloatVector results[2];
    for (int k = 0; k < 2; ++k) {
      const FloatVector a = bf16_to_floats(x + i + k * kPerVector);
      const FloatVector b = kNumber ? number - FloatVector{} : bf16_to_floats(y + i + k * kPerVector);
      results[k] = Op::apply(a, b);
    }
    store_bf16(out + i, results[0], results[1]);
  }
#pragma GCC ivdep
  for (; i < n; ++i) out[i] = to_bf16(Op::apply(bf16_to_float(x[i]), kNumber ? number : bf16_to_float(y[i])));
}

}  // namespace
}  // namespace popsr::kernels
