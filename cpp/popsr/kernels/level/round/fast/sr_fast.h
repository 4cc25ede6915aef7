// Kernels for the common calls, in one pass over memory.
#pragma once

#include "popsr/kernels/contract/round.h"

namespace popsr::kernels {

/// Executes the call and returns true, if it is one of these. Proportional: add and sub of two operands of
/// one format (float64, float32, float16, bfloat16), of a 16-bit format and float32 into the former, casts
/// of float32 to the 16-bit formats, also with a residual, and axpy of float64. Of equal chances: add and
/// sub of one format, and of bfloat16 and float32 into the former.
bool sr_apply_fast(const SrCall& call);

/// Executes the call and returns true, if it is a proportional mul, axpy, fma, lerp, addcmul or addcdiv with
/// a result of float32, float16 or bfloat16, whose operands have that format or are the result's and
/// float32, on a CPU with a fused multiply-add.
bool sr_apply_fused(const SrCall& call);

/// Executes the call and returns true, if it is a proportional one with a result narrower than float64 (only
/// cast, add, sub and mul on a CPU without a fused multiply-add).
bool sr_apply_truncated(const SrCall& call);

}  // namespace popsr::kernels
