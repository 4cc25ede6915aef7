// Elementwise functions with polynomial kernels; the signatures are EwFn. Worst errors in ulp, measured
// against long double on dense samples and all binades (tests_cpp/test_kernels_math.cpp keeps the bounds);
// the same bits at every level.
//
//               float            double
//   exp         0.97  (bound 2)  0.79  (bound 2)
//   log         0.80  (bound 2)  0.80  (bound 2)
//   tanh        1.33  (bound 2)  1.29  (bound 2)
//   gelu        0.501 (bound 2)  2.80  (bound 4)
//   pow         0.501 (bound 1)  0.81  (bound 2)
//   gelu grad   0.501 (bound 1)  3.4e-16 absolute for dy = 1 (bound 1e-15)
//
// The gradients of pow are products of rounded factors: about one ulp more than pow and log.
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
