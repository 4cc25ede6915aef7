#include "popsr/kernels/level/convert/bf16.h"
#include "popsr/kernels/level/math/gelu-inl.h"
#include "popsr/kernels/level/math/math.h"
#include "popsr/kernels/level/math/math_f32-inl.h"
#include "popsr/kernels/level/math/pow-inl.h"
#include "popsr/kernels/level/simd/loops-inl.h"
#include "popsr/kernels/level/simd/vectors-inl.h"

namespace popsr::kernels {
namespace {

struct Exp {
  template <class F>
  [[gnu::always_inline]] static F apply(F x) {
    return exp_of(x);
  }
};
struct ExpBf16 {
  [[gnu::always_inline]] static Floats apply(Floats x) { return exp_of_bf16(x); }
};
struct Log {
  static float apply(float x) { return log_of(x); }
};
struct Tanh {
  static float apply(float x) { return tanh_of(x); }
};
struct Gelu {
  [[gnu::always_inline]] static Floats apply(const Floats& x) { return gelu_of(x); }
};
struct GeluGrad {  // The product in double, rounded once.
  static float apply(float x, float dy) {
    return static_cast<float>(static_cast<double>(dy) * gelu_derivative(static_cast<double>(x)));
  }
};
struct Pow {
  static float apply(float x, float y) { return pow_of(x, y); }
};
struct PowGradBase {  // e - 1 is rounded as in the formula's own arithmetic.
  static float apply(float t, float e) { return e == 0.0F ? 0.0F : e * pow_of(t, e - 1.0F); }
};
struct PowGradExponent {
  static float apply(float t, float y) { return t == 0.0F ? 0.0F : y * log_of(t); }
};

}  // namespace

void exp_f32(void* hi, void* lo, const void* const* in, std::int64_t n, const double* p) {
  unary_packs<float, Exp>(hi, lo, in, n, p);
}
void exp_bf16(void* hi, void* lo, const void* const* in, std::int64_t n, const double* p) {
  unary_packs<std::uint16_t, ExpBf16>(hi, lo, in, n, p);
}
void log_f32(void* hi, void* lo, const void* const* in, std::int64_t n, const double* p) {
  unary_loop<float, Log>(hi, lo, in, n, p);
}
void tanh_f32(void* hi, void* lo, const void* const* in, std::int64_t n, const double* p) {
  unary_loop<float, Tanh>(hi, lo, in, n, p);
}
void gelu_f32(void* hi, void* lo, const void* const* in, std::int64_t n, const double* p) {
  unary_packs<float, Gelu>(hi, lo, in, n, p);
}
void gelu_bf16(void* hi, void* lo, const void* const* in, std::int64_t n, const double* p) {
  unary_packs<std::uint16_t, Gelu>(hi, lo, in, n, p);
}
void gelu_grad_f32(void* hi, void* lo, const void* const* in, std::int64_t n, const double* p) {
  binary_loop<float, GeluGrad>(hi, lo, in, n, p);
}
void pow_f32(void* hi, void* lo, const void* const* in, std::int64_t n, const double* p) {
  binary_loop<float, Pow>(hi, lo, in, n, p);
}
void pow_grad_base_f32(void* hi, void* lo, const void* const* in, std::int64_t n, const double* p) {
  binary_loop<float, PowGradBase>(hi, lo, in, n, p);
}
void pow_grad_exponent_f32(void* hi, void* lo, const void* const* in, std::int64_t n, const double* p) {
  binary_loop<float, PowGradExponent>(hi, lo, in, n, p);
}

}  // namespace popsr::kernels
