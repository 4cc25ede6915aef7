// Templates from the struct of an element-wise kernel to the functions of its row.
//
// A struct has `apply` on values: operands first, then a pointer to the scalars if the row has some. If the
// row has a residual it has `residual` too, which takes the sum before the same arguments. Optional members,
// for speed:
//  kPacks      apply also takes packs of floats (simd/vectors-inl.h): long chains of operations
//  apply_bf16  result for a pack of bfloat16, with fewer steps than apply
//  run         a loop of its own, an ElementwiseFn of type T; run_bf16 on arrays of bfloat16
//
// "ivdep": outputs may alias an input exactly, which the vectoriser need not guard against because every
// iteration loads before it stores; without it in-place calls would take a scalar path.
#pragma once

#include "popsr/kernels/contract/elementwise.h"
#include "popsr/kernels/level/convert/bf16-inl.h"
#include "popsr/kernels/level/simd/vectors-inl.h"

namespace popsr::kernels {

/// The functions of each row: defined beside its struct.
#define POPSR_ROW(name, ...) extern const ElementwiseKernels k##name##Kernels;
#include "popsr/kernels/contract/elementwise.def"

namespace {

/// Scalar of the compute type: a scalar is a double; an integer type takes it truncated and saturated.
template <class T>
inline T scalar_as(double value) {
  if constexpr (Traits<T>::kFloat) {
    return static_cast<T>(value);
  } else {
    const double limit = static_cast<double>(1ULL << (8 * sizeof(T) - (Traits<T>::kSigned ? 2 : 1))) * 2.0;
    if (value >= limit) return highest_integer<T>();
    if (value <= (Traits<T>::kSigned ? -limit : 0.0)) return lowest_integer<T>();
    return value == value ? static_cast<T>(value) : static_cast<T>(0);
  }
}

template <class T, ElementwiseOp kOp>
struct Scalars {
  static constexpr int kCount = row_of(kOp).scalars;
  T value[kCount];
  explicit Scalars(const double* p) {
    for (int k = 0; k < kCount; ++k) value[k] = scalar_as<T>(p[k]);
  }
};
template <class T, ElementwiseOp kOp>
requires(row_of(kOp).scalars == 0) struct Scalars<T, kOp> {
  explicit Scalars(const double*) {}
};

/// Calls f(operands of element i, scalars).
template <class T, ElementwiseOp kOp, class F>
[[gnu::always_inline]] inline T call(F f, T a, const T* y, const T* z, std::int64_t i,
                                     const Scalars<T, kOp>& scalars) {
  constexpr ElementwiseRow kRow = row_of(kOp);
  if constexpr (kRow.operands == 1) {
    if constexpr (kRow.scalars == 0)
      return f(a);
    else
      return f(a, scalars.value);
  } else if constexpr (kRow.operands == 2) {
    if constexpr (kRow.scalars == 0)
      return f(a, y[i]);
    else
      return f(a, y[i], scalars.value);
  } else {
    return f(a, y[i], z[i]);
  }
}

template <class Op, ElementwiseOp kOp, class T>
void elementwise_loop(void* hi, [[maybe_unused]] void* lo, const void* const* in, std::int64_t n,
                      const double* p) {
  constexpr ElementwiseRow kRow = row_of(kOp);
  const T* x = static_cast<const T*>(in[0]);
  const T* y = static_cast<const T*>(in[kRow.operands > 1 ? 1 : 0]);
  const T* z = static_cast<const T*>(in[kRow.operands > 2 ? 2 : 0]);
  T* out = static_cast<T*>(hi);
  const Scalars<T, kOp> scalars(p);
  const auto apply = [](auto... values) __attribute__((always_inline)) { return Op::apply(values...); };
  if constexpr (kRow.residual) {
    if (T* const rest = static_cast<T*>(lo); rest != nullptr) {
#pragma GCC ivdep
      for (std::int64_t i = 0; i < n; ++i) {
        const T a = x[i];
        const T b = y[i];
        const T sum = call<T, kOp>(apply, a, &b, z, 0, scalars);
        const auto residual = [sum](auto... values) __attribute__((always_inline)) {
          return Op::residual(sum, values...);
        };
        out[i] = sum;
        if constexpr (Traits<T>::kFloat)
          rest[i] = call<T, kOp>(residual, a, &b, z, 0, scalars);
        else
          rest[i] = 0;
      }
      return;
    }
  }
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) out[i] = call<T, kOp>(apply, x[i], y, z, i, scalars);
}

/// Loop for the case that operand 1 is one number.
template <class Op, class T>
void loop_with_number(void* hi, void*, const void* const* in, std::int64_t n, const double*) {
  const T* x = static_cast<const T*>(in[0]);
  const T number = *static_cast<const T*>(in[1]);
  T* out = static_cast<T*>(hi);
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) out[i] = Op::apply(x[i], number);
}

template <class Op>
struct OnBf16 {
  template <class F>
  [[gnu::always_inline]] static F apply(const F& x) {
    if constexpr (requires { Op::apply_bf16(x); })
      return Op::apply_bf16(x);
    else
      return Op::apply(x);
  }
};

template <class Op, ElementwiseOp kOp, class T>
consteval ElementwiseFn kernel_of() {
  if constexpr (requires(void* hi, const void* const* in) { Op::template run<T>(hi, hi, in, 0, nullptr); })
    return Op::template run<T>;
  else if constexpr (sizeof(T) == sizeof(float) && Traits<T>::kFloat && requires { Op::kPacks; })
    return packs<T, Op, row_of(kOp).operands>;
  else
    return elementwise_loop<Op, kOp, T>;
}

/// Kernel of a signed integer: that of the unsigned one if the op computes the same bits for both.
template <class Op, ElementwiseOp kOp, class T>
consteval ElementwiseFn signed_kernel_of() {
  if constexpr (requires { Op::kIgnoresSign; })
    return kernel_of<Op, kOp, Unsigned<T>>();
  else
    return kernel_of<Op, kOp, T>();
}

template <class Op, ElementwiseOp kOp>
consteval ElementwiseFn bf16_kernel_of() {
  if constexpr (requires { Op::run_bf16; })
    return Op::run_bf16;
  else if constexpr (requires { Op::kPacks; })
    return packs<std::uint16_t, OnBf16<Op>, 1>;
  else if constexpr (row_of(kOp).operands == 1)
    return unary_bf16<Op>;
  else
    return binary_bf16<Op, false>;
}

template <class Op, ElementwiseOp kOp>
consteval ElementwiseKernels kernels_of() {
  constexpr unsigned kTypes = row_of(kOp).types;
  ElementwiseKernels kernels = {};
  const auto set = [&](Compute type, ElementwiseFn function) {
    kernels.of[static_cast<int>(type)] = function;
  };
  if constexpr ((kTypes & kFloatTypes) != 0) {
    set(Compute::kF32, kernel_of<Op, kOp, float>());
    set(Compute::kF64, kernel_of<Op, kOp, double>());
  }
  if constexpr ((kTypes & kIntegerTypes) != 0) {
    set(Compute::kI8, signed_kernel_of<Op, kOp, std::int8_t>());
    set(Compute::kI16, signed_kernel_of<Op, kOp, std::int16_t>());
    set(Compute::kI32, signed_kernel_of<Op, kOp, std::int32_t>());
    set(Compute::kI64, signed_kernel_of<Op, kOp, std::int64_t>());
    set(Compute::kU8, kernel_of<Op, kOp, std::uint8_t>());
    set(Compute::kU16, kernel_of<Op, kOp, std::uint16_t>());
    set(Compute::kU32, kernel_of<Op, kOp, std::uint32_t>());
    set(Compute::kU64, kernel_of<Op, kOp, std::uint64_t>());
  }
  if constexpr ((kTypes & kBoolType) != 0) set(Compute::kBool, kernel_of<Op, kOp, std::uint8_t>());
  if constexpr ((kTypes & kBf16Type) != 0) kernels.bf16 = bf16_kernel_of<Op, kOp>();
  constexpr bool kCheap = row_of(kOp).operands == 2 && row_of(kOp).scalars == 0 && row_of(kOp).work == 1;
  if constexpr (kCheap && (kTypes & kFloatTypes) != 0) {
    kernels.with_number[static_cast<int>(Compute::kF32)] = loop_with_number<Op, float>;
    kernels.with_number[static_cast<int>(Compute::kF64)] = loop_with_number<Op, double>;
  }
  if constexpr (kCheap && (kTypes & kBf16Type) != 0) kernels.bf16_with_number = binary_bf16<Op, true>;
  return kernels;
}

}  // namespace
}  // namespace popsr::kernels
