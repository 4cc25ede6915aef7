// More elementwise functions with kernels of their own; the signatures are EwFn. Worst errors in ulp,
// measured against long double on dense samples and all binades (tests_cpp/test_kernels_functions.cpp keeps
// the bounds); the same bits at every level.
//
//                 float                  double
//   sin, cos      0.501 (bound 0.55)     0.77 (bound 1)
//   log2          0.501 (bound 0.51)     0.501 (bound 0.51)
//   sigmoid       2.38 (bound 3)         2.13 (bound 3)
//   swish         2.31 (bound 4)         2.58 (bound 4)
//   geluerf       5.43 (bound 6)         4.37 (bound 5)
//   slopes        1.9e-7 (bound 4e-7)    3.1e-16 (bound 1e-15)   absolute, for dy = 1
//
// rsqrt, 1.48 (bound 1.5), and what is exact: elementwise-inl.h and exact-inl.h.
#pragma once

#include <cstdint>

namespace popsr::kernels {

void sin_f32(void* hi, void* lo, const void* const* in, std::int64_t n, const double* p);
void cos_f32(void* hi, void* lo, const void* const* in, std::int64_t n, const double* p);
void log2_f32(void* hi, void* lo, const void* const* in, std::int64_t n, const double* p);
void sigmoid_f32(void* hi, void* lo, const void* const* in, std::int64_t n, const double* p);
void sigmoid_grad_f32(void* hi, void* lo, const void* const* in, std::int64_t n, const double* p);
void swish_f32(void* hi, void* lo, const void* const* in, std::int64_t n, const double* p);
void swish_grad_f32(void* hi, void* lo, const void* const* in, std::int64_t n, const double* p);
void geluerf_f32(void* hi, void* lo, const void* const* in, std::int64_t n, const double* p);
void geluerf_grad_f32(void* hi, void* lo, const void* const* in, std::int64_t n, const double* p);

void sin_f64(void* hi, void* lo, const void* const* in, std::int64_t n, const double* p);
void cos_f64(void* hi, void* lo, const void* const* in, std::int64_t n, const double* p);
void log2_f64(void* hi, void* lo, const void* const* in, std::int64_t n, const double* p);
void sigmoid_f64(void* hi, void* lo, const void* const* in, std::int64_t n, const double* p);
void sigmoid_grad_f64(void* hi, void* lo, const void* const* in, std::int64_t n, const double* p);
void swish_f64(void* hi, void* lo, const void* const* in, std::int64_t n, const double* p);
void swish_grad_f64(void* hi, void* lo, const void* const* in, std::int64_t n, const double* p);
void geluerf_f64(void* hi, void* lo, const void* const* in, std::int64_t n, const double* p);
void geluerf_grad_f64(void* hi, void* lo, const void* const* in, std::int64_t n, const double* p);

}  // namespace popsr::kernels
