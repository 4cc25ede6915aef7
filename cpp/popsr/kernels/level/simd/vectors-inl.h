// The elementwise loop in packs of vectors, for long chains of operations, on floats and on bfloat16. An
// operation is a struct with a static apply() on Floats.
#pragma once

#include "popsr/kernels/level/simd/vector_types-inl.h"

namespace popsr::kernels {
namespace {

[[gnu::always_inline]] inline void load_vector(FloatVector& to, const float* x) {
  __builtin_memcpy(&to, x, sizeof(to));
}
[[gnu::always_inline]] inline void load_vector(FloatVector& to, const std::uint16_t* x) {
  to = bf16_to_floats(x);
}
[[gnu::always_inline]] inline void store_vector(float* to, FloatVector x) {
  __builtin_memcpy(to, &x, sizeof(x));
}
[[gnu::always_inline]] inline void store_vector(std::uint16_t* to, FloatVector x) {
  const HalfVector out = floats_to_bf16(x);
  __builtin_memcpy(to, &out, sizeof(out));
}

/// One pack.
template <class Op, class Stored>
[[gnu::always_inline]] inline void apply_pack(Stored* to, const Stored* x) {
  Floats pack;
  for (int k = 0; k < kPack; ++k) load_vector(pack.v[k], x + k * (kFloats / kPack));
  pack = Op::apply(pack);
  for (int k = 0; k < kPack; ++k) store_vector(to + k * (kFloats / kPack), pack.v[k]);
}

/// `Stored` is float, or a word that holds a bfloat16. The rest runs in a padded pack.
template <class Stored, class Op>
void unary_packs(void* hi, void*, const void* const* in, std::int64_t n, const double*) {
  const Stored* x = static_cast<const Stored*>(in[0]);
  Stored* out = static_cast<Stored*>(hi);
  std::int64_t i = 0;
  for (; i + kFloats <= n; i += kFloats) apply_pack<Op>(out + i, x + i);
  if (i == n) return;
  Stored rest[kFloats] = {};
  __builtin_memcpy(rest, x + i, static_cast<std::size_t>(n - i) * sizeof(Stored));
  apply_pack<Op>(rest, rest);
  __builtin_memcpy(out + i, rest, static_cast<std::size_t>(n - i) * sizeof(Stored));
}

/// One pack of two operands.
template <class Op>
[[gnu::always_inline]] inline void apply_pack(float* to, const float* x, const float* y) {
  Floats a, b;
  for (int k = 0; k < kPack; ++k) {
    load_vector(a.v[k], x + k * (kFloats / kPack));
    load_vector(b.v[k], y + k * (kFloats / kPack));
  }
  a = Op::apply(a, b);
  for (int k = 0; k < kPack; ++k) store_vector(to + k * (kFloats / kPack), a.v[k]);
}

template <class Op>
void binary_packs(void* hi, void*, const void* const* in, std::int64_t n, const double*) {
  const float *x = static_cast<const float*>(in[0]), *y = static_cast<const float*>(in[1]);
  float* out = static_cast<float*>(hi);
  std::int64_t i = 0;
  for (; i + kFloats <= n; i += kFloats) apply_pack<Op>(out + i, x + i, y + i);
  if (i == n) return;
  float rest[2][kFloats] = {};
  __builtin_memcpy(rest[0], x + i, static_cast<std::size_t>(n - i) * sizeof(float));
  __builtin_memcpy(rest[1], y + i, static_cast<std::size_t>(n - i) * sizeof(float));
  apply_pack<Op>(rest[0], rest[0], rest[1]);
  __builtin_memcpy(out + i, rest[0], static_cast<std::size_t>(n - i) * sizeof(float));
}

}  // namespace
}  // namespace popsr::kernels
