// One element of any operation by whole numbers: no overflow, no underflow, no approximation. The fast
// kernels fall back to it for elements that they cannot decide: ties of the bits they compare, infinities,
// NaNs and extreme exponents.
#pragma once

#include <cstdint>

#include "popsr/kernels/contract/round.h"

namespace popsr::kernels {

/// Bits of the result in rounding.format. `in` = x, y, z; unused ones are ignored. For kLerp z is t.
std::uint64_t round_exactly(SrOp op, const double* in, double scalar, const SrRounding& rounding,
                            std::uint64_t u);

/// Bits of the result for an element of a call, whose operands are `in`.
std::uint64_t round_element(const SrCall& call, const double* in, std::uint64_t u);

/// Bits of |x| = NaN, infinity or zero of any sign.
std::uint64_t round_special(double x, const SrRounding& rounding);

/// Elements of a tile that a vector kernel cannot decide, one after another.
struct HardElements {
  static constexpr int kMost = 512;
  double in[3][kMost];  ///< Operands; unused ones have any value.
  std::uint64_t u[kMost];
  int index[kMost];  ///< Index in the tile.
  int n = 0;
};

/// Rounds all hard elements, each to its place in `out`, a tile of the call's format.
void round_hard_elements(void* out, HardElements& hard, const SrCall& call);

}  // namespace popsr::kernels
