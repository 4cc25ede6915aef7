// float16, bfloat16 and float8 to and from float; see KernelTable for the contracts.
#pragma once

#include <cstdint>

#include "popsr/kernels/contract/kernel_table.h"

namespace popsr::kernels {

void widen_f16(float* out, const std::uint16_t* in, std::int64_t n);
void widen_bf16(float* out, const std::uint16_t* in, std::int64_t n);
void narrow_f16(std::uint16_t* out, const float* hi, const float* lo, std::int64_t n);
void narrow_bf16(std::uint16_t* out, const float* hi, const float* lo, std::int64_t n);
void widen_f8_143(float* out, const std::uint8_t* in, std::int64_t n);
void widen_f8_152(float* out, const std::uint8_t* in, std::int64_t n);
void narrow_f8_143(std::uint8_t* out, const float* hi, const float* lo, std::int64_t n);
void narrow_f8_152(std::uint8_t* out, const float* hi, const float* lo, std::int64_t n);
void narrow_sr_f16(std::uint16_t* out, const float* hi, const float* lo, std::int64_t n, NoiseKey key,
                   std::uint64_t first);
void narrow_sr_bf16(std::uint16_t* out, const float* hi, const float* lo, std::int64_t n, NoiseKey key,
                    std::uint64_t first);
void split_f64(float* hi, float* lo, const double* in, std::int64_t n);
void split_i64(float* hi, float* lo, const std::int64_t* in, std::int64_t n);
void split_u64(float* hi, float* lo, const std::uint64_t* in, std::int64_t n);

}  // namespace popsr::kernels
