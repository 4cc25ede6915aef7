// Element-wise kernels: their rows (elementwise.def), and the functions of a level.
#pragma once

#include <cstdint>

namespace popsr::kernels {

/// Compute types of the arithmetic: narrow floats are widened to float first.
enum class Compute : int { kF32, kF64, kI8, kI16, kI32, kI64, kU8, kU16, kU32, kU64, kBool };
inline constexpr int kNumComputes = 11;

/// Sets of compute types, a bit each, and arrays of bfloat16.
inline constexpr unsigned kFloatTypes = 0x3, kIntegerTypes = 0x3fc,
                          kNumberTypes = kFloatTypes | kIntegerTypes;
inline constexpr unsigned kBoolType = 1U << static_cast<int>(Compute::kBool), kBf16Type = 1U << kNumComputes;

enum class ElementwiseOp : int {
#define POPSR_ROW(name, ...) k##name,
#include "popsr/kernels/contract/elementwise.def"
  kCount
};
inline constexpr int kNumElementwiseOps = static_cast<int>(ElementwiseOp::kCount);

/// One row of elementwise.def: a member per column.
struct ElementwiseRow {
  const char* name;
  int operands;
  int scalars;
  unsigned types;
  int work;
  bool residual;
  int flops;
};

constexpr ElementwiseRow row_of(ElementwiseOp op) {
  constexpr ElementwiseRow kRows[] = {
#define POPSR_ROW(name, ...) {#name, __VA_ARGS__},
#include "popsr/kernels/contract/elementwise.def"
  };
  return kRows[static_cast<int>(op)];
}

/// Element-wise function of a level. in[] holds arrays of the compute type, p[] scalars. hi[i] = rounded
/// result; lo (only for rows with a residual, may be null) = the residual, 0 where hi is not finite. hi and
/// lo may alias an input exactly.
using ElementwiseFn = void (*)(void* hi, void* lo, const void* const* in, std::int64_t n, const double* p);

/// Functions of one row; nullptr for types that the row does not have.
struct ElementwiseKernels {
  ElementwiseFn of[kNumComputes];
  /// Function on arrays of bfloat16, rounded to nearest: the bits equal widening, the kernel of float, and
  /// narrowing of its hi and lo. `lo` is not written.
  ElementwiseFn bf16;
  /// Functions for the case that operand 1 is one number, for cheap rows of two operands and no scalars: of
  /// float, double.
  ElementwiseFn with_number[2];
  ElementwiseFn bf16_with_number;
};

}  // namespace popsr::kernels
