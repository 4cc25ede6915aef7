// Elementwise functions of bfloat16, see bf16-inl.h; the signatures are EwFn.
#pragma once

#include <cstdint>

namespace popsr::kernels {

void exp_bf16(void* hi, void* lo, const void* const* in, std::int64_t n, const double* p);
void gelu_bf16(void* hi, void* lo, const void* const* in, std::int64_t n, const double* p);
void sigmoid_bf16(void* hi, void* lo, const void* const* in, std::int64_t n, const double* p);
void swish_bf16(void* hi, void* lo, const void* const* in, std::int64_t n, const double* p);
void sin_bf16(void* hi, void* lo, const void* const* in, std::int64_t n, const double* p);
void cos_bf16(void* hi, void* lo, const void* const* in, std::int64_t n, const double* p);

}  // namespace popsr::kernels
