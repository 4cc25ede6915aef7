// Masks of dropout and their application; see KernelTable.
#pragma once

#include <cstdint>

#include "popsr/kernels/contract/noise_key.h"

namespace popsr::kernels {

void keep_mask(std::uint8_t* kept, std::int64_t n, NoiseKey key, std::uint64_t first,
               std::uint64_t threshold);
void keep_scaled_f32(float* out, const float* in, const std::uint8_t* kept, std::int64_t n, float scale);
void keep_scaled_f64(double* out, const double* in, const std::uint8_t* kept, std::int64_t n, double scale);

}  // namespace popsr::kernels
