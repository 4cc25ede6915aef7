// Casts between float32 and the carriers, OCP's microscaling formats: float8_e8m0fnu (powers of two) and
// float4_e2m1fn. They round as ml_dtypes does, whether or not stochastic rounding is on.
#pragma once

#include <cstdint>

#include "popsr/exec/block_kernel.h"

namespace popsr {

/// Encodes 2^(code - 127); code 255 is NaN. Halfway cases round up, as does everything between 2^-127 and
/// 2^-126; smaller positive numbers become 2^-127; zero, negative numbers, infinities, NaN and numbers that
/// round to 2^128 become NaN.
std::uint8_t encode_e8m0(float value);
float decode_e8m0(std::uint8_t code);

/// Encodes sign and 0, 0.5, 1, 1.5, 2, 3, 4, 6, rounding to nearest even; numbers beyond 6 and infinities
/// become 6, NaN becomes a zero of the other sign. Bits 4 to 7 are 0, and are ignored by the decoder.
std::uint8_t encode_e2m1(float value);
float decode_e2m1(std::uint8_t code);

/// Kernel: output 0 = input 0, one of which is a carrier and the other float32.
BlockKernel carrier_cast(const EvalSpec& spec);

}  // namespace popsr
