// Elementwise functions with polynomial kernels; the signatures are EwFn. Bounds in ulp measured against a wide
// reference on dense samples (tests_cpp/test_kernels_math.cpp keeps them); every level gives the same bits.
//
//               float   double
//   exp         TBD
#pragma once

#include <cstdint>

namespace popsr::kernels {

void exp_f32(void* hi, void* lo, const void* const* in, std::int64_t n, const double* p);
void log_f32(void* hi, void* lo, const void* const* in, std::int64_t n, const double* p);
void tanh_f32(void* hi, void* lo, const void* const* in, std::int64_t n, const double* p);
void gelu_f32(void* hi, void* lo, const void* const* in, std::int64_t n, const double* p);
void gelu_grad_f32(void* hi, void* lo, const void* const* in, std::int64_t n, const double* p);
void pow_f32(void* hi, void* lo, const void* const* in, std::int64_t n, const double* p);
void pow_grad_base_f32(void* hi, void* lo, const void* const* in, std::int64_t n, const double* p);
void pow_grad_exponent_f32(void* hi, void* lo, const void* const* in, std::int64_t n, const double* p);

void exp_f64(void* hi, void* lo, const void* const* in, std::int64_t n, const double* p);
void log_f64(void* hi, void* lo, const void* const* in, std::int64_t n, const double* p);
void tanh_f64(void* hi, void* lo, const void* const* in, std::int64_t n, const double* p);
void gelu_f64(void* hi, void* lo, const void* const* in, std::int64_t n, const double* p);
void gelu_grad_f64(void* hi, void* lo, const void* const* in, std::int64_t n, const double* p);
void pow_f64(void* hi, void* lo, const void* const* in, std::int64_t n, const double* p);
void pow_grad_base_f64(void* hi, void* lo, const void* const* in, std::int64_t n, const double* p);
void pow_grad_exponent_f64(void* hi, void* lo, const void* const* in, std::int64_t n, const double* p);

/// Softmax of one row, see SoftmaxFn.
void softmax_f32(void* out, const void* in, std::int64_t n);
void softmax_f64(void* out, const void* in, std::int64_t n);

}  // namespace popsr::kernels
