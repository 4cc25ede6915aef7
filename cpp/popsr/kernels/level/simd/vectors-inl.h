// Elementwise loop in packs of vectors, for long chains of operations, on floats and on bfloat16. An
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

template <class Stored>
[[gnu::always_inline]] inline Floats load_pack(const Stored* x) {
  Floats pack;
  for (int k = 0; k < kPack; ++k) load_vector(pack.v[k], x + k * (kFloats / kPack));
  return pack;
}

/// Computes one pack, from element i on.
template <class Op, class Stored, std::size_t kOperands>
[[gnu::always_inline]] inline void apply_pack(Stored* to, const Stored* const (&x)[kOperands],
                                              std::int64_t i) {
  Floats pack;
  if constexpr (kOperands == 1)
    pack = Op::apply(load_pack(x[0] + i));
  else
    pack = Op::apply(load_pack(x[0] + i), load_pack(x[1] + i));
  for (int k = 0; k < kPack; ++k) store_vector(to + i + k * (kFloats / kPack), pack.v[k]);
}

/// Loop over an array; `Stored` is float, or a word that holds a bfloat16. The rest runs in a padded pack.
template <class Stored, class Op, std::size_t kOperands>
void packs(void* hi, void*, const void* const* in, std::int64_t n, const double*) {
  const Stored* x[kOperands];
  for (std::size_t k = 0; k < kOperands; ++k) x[k] = static_cast<const Stored*>(in[k]);
  Stored* out = static_cast<Stored*>(hi);
  std::int64_t i = 0;
  for (; i + kFloats <= n; i += kFloats) apply_pack<Op>(out, x, i);
  if (i == n) return;
  const std::size_t bytes = static_cast<std::size_t>(n - i) * sizeof(Stored);
  Stored rest[kOperands][kFloats] = {};
  for (std::size_t k = 0; k < kOperands; ++k) {
    __builtin_memcpy(rest[k], x[k] + i, bytes);
    x[k] = rest[k];
  }
  apply_pack<Op>(rest[0], x, 0);
  __builtin_memcpy(out + i, rest[0], bytes);
}

}  // namespace
}  // namespace popsr::kernels
