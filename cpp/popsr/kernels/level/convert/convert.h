// Conversion of narrow floats to and from float, and of wide numbers to pairs of floats; see KernelTable
// for the contracts.
#pragma once

#include <cstdint>

#include "popsr/base/float_format.h"

namespace popsr::kernels {

void widen_floats(FloatFormat format, float* out, const void* in, std::int64_t n);
void narrow_floats(FloatFormat format, void* out, const float* hi, const float* lo, std::int64_t n);

void split_f64(float* hi, float* lo, const double* in, std::int64_t n);
void split_i64(float* hi, float* lo, const std::int64_t* in, std::int64_t n);
void split_u64(float* hi, float* lo, const std::uint64_t* in, std::int64_t n);

}  // namespace popsr::kernels
