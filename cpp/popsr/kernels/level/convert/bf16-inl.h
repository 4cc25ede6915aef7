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

/// Nearest even; NaN keeps its sign only.
[[gnu::always_inline]] inline std::uint16_t to_bf16(float x) {
  const std::uint32_t u = bits_of(x);
  const std::uint32_t rounded = (u + 0x7fffU + ((u >> 16) & 1U)) >> 16;
  return static_cast<std::uint16_t>(x != x ? sign_16(x) | 0x7fc0U : rounded);
}

template <class Op>
void unary_bf16(void* hi, void*, const void* const* in, std::int64_t n, const double*) {
  const std::uint16_t* x = static_cast<const std::uint16_t*>(in[0]);
  std::uint16_t* out = static_cast<std::uint16_t*>(hi);
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) out[i] = to_bf16(Op::apply(bf16_to_float(x[i])));
}

template <class Op>
void binary_bf16(void* hi, void*, const void* const* in, std::int64_t n, const double*) {
  const std::uint16_t* x = static_cast<const std::uint16_t*>(in[0]);
  const std::uint16_t* y = static_cast<const std::uint16_t*>(in[1]);
  std::uint16_t* out = static_cast<std::uint16_t*>(hi);
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) out[i] = to_bf16(Op::apply(bf16_to_float(x[i]), bf16_to_float(y[i])));
}

}  // namespace
}  // namespace popsr::kernels
