#include "popsr/kernels/level/math/gelu-inl.h"
#include "popsr/kernels/level/math/math.h"
#include "popsr/kernels/level/math/pow-inl.h"
#include "popsr/kernels/level/simd/loops-inl.h"

namespace popsr::kernels {
namespace {

struct Exp {
  static double apply(double x) { return exp_of(x); }
};
struct Log {
  static double apply(double x) { return log_of(x); }
};
struct Tanh {
  static double apply(double x) { return tanh_of(x); }
};
struct Gelu {
  static double apply(double x) { return gelu_of(x); }
};
struct GeluGrad {
  static double apply(double x, double dy) { return dy * gelu_derivative(x); }
};
struct Pow {
  static double apply(double x, double y) { return pow_of(x, y); }
};
struct PowGradBase {  // e - 1 is rounded as in the formula's own arithmetic.
  static double apply(double t, double e) { return e == 0.0 ? 0.0 : e * pow_of(t, e - 1.0); }
};
struct PowGradExponent {
  static double apply(double t, double y) { return t == 0.0 ? 0.0 : y * log_of(t); }
};

}  // namespace

void exp_f64(void* hi, void* lo, const void* const* in, std::int64_t n, const double* p) {
  unary_loop<double, Exp>(hi, lo, in, n, p);
}
void log_f64(void* hi, void* lo, const void* const* in, std::int64_t n, const double* p) {
  unary_loop<double, Log>(hi, lo, in, n, p);
}
void tanh_f64(void* hi, void* lo, const void* const* in, std::int64_t n, const double* p) {
  unary_loop<double, Tanh>(hi, lo, in, n, p);
}
void gelu_f64(void* hi, void* lo, const void* const* in, std::int64_t n, const double* p) {
  unary_loop<double, Gelu>(hi, lo, in, n, p);
}
void gelu_grad_f64(void* hi, void* lo, const void* const* in, std::int64_t n, const double* p) {
  binary_loop<double, GeluGrad>(hi, lo, in, n, p);
}
void pow_f64(void* hi, void* lo, const void* const* in, std::int64_t n, const double* p) {
  binary_loop<double, Pow>(hi, lo, in, n, p);
}
void pow_grad_base_f64(void* hi, void* lo, const void* const* in, std::int64_t n, const double* p) {
  binary_loop<double, PowGradBase>(hi, lo, in, n, p);
}
void pow_grad_exponent_f64(void* hi, void* lo, const void* const* in, std::int64_t n, const double* p) {
  binary_loop<double, PowGradExponent>(hi, lo, in, n, p);
}

}  // namespace popsr::kernels
