#include "popsr/kernels/level/math/logistic-inl.h"

#include "popsr/kernels/level/convert/bf16.h"
#include "popsr/kernels/level/math/functions.h"
#include "popsr/kernels/level/simd/loops-inl.h"
#include "popsr/kernels/level/simd/vectors-inl.h"

namespace popsr::kernels {
namespace {

struct Sigmoid {
  template <class T>
  [[gnu::always_inline]] static T apply(T x) {
    return sigmoid_of(x);
  }
};
template <class T>
struct SigmoidGrad {
  [[gnu::always_inline]] static T apply(T x, T dy) { return dy * sigmoid_derivative(x); }
};
struct Swish {
  template <class T>
  [[gnu::always_inline]] static T apply(T x) {
    return swish_of(x);
  }
};
template <class T>
struct SwishGrad {
  [[gnu::always_inline]] static T apply(T x, T dy) { return dy * swish_derivative(x); }
};
template <class T>
struct Log2 {
  [[gnu::always_inline]] static T apply(T x) { return log2_of(x); }
};

}  // namespace

void sigmoid_f32(void* hi, void* lo, const void* const* in, std::int64_t n, const double* p) {
  unary_packs<float, Sigmoid>(hi, lo, in, n, p);
}
void sigmoid_grad_f32(void* hi, void* lo, const void* const* in, std::int64_t n, const double* p) {
  binary_loop<float, SigmoidGrad<float>>(hi, lo, in, n, p);
}
void sigmoid_bf16(void* hi, void* lo, const void* const* in, std::int64_t n, const double* p) {
  unary_packs<std::uint16_t, Sigmoid>(hi, lo, in, n, p);
}
void swish_bf16(void* hi, void* lo, const void* const* in, std::int64_t n, const double* p) {
  unary_packs<std::uint16_t, Swish>(hi, lo, in, n, p);
}
void swish_f32(void* hi, void* lo, const void* const* in, std::int64_t n, const double* p) {
  unary_packs<float, Swish>(hi, lo, in, n, p);
}
void swish_grad_f32(void* hi, void* lo, const void* const* in, std::int64_t n, const double* p) {
  binary_loop<float, SwishGrad<float>>(hi, lo, in, n, p);
}
void log2_f32(void* hi, void* lo, const void* const* in, std::int64_t n, const double* p) {
  unary_loop<float, Log2<float>>(hi, lo, in, n, p);
}

void sigmoid_f64(void* hi, void* lo, const void* const* in, std::int64_t n, const double* p) {
  unary_loop<double, Sigmoid>(hi, lo, in, n, p);
}
void sigmoid_grad_f64(void* hi, void* lo, const void* const* in, std::int64_t n, const double* p) {
  binary_loop<double, SigmoidGrad<double>>(hi, lo, in, n, p);
}
void swish_f64(void* hi, void* lo, const void* const* in, std::int64_t n, const double* p) {
  unary_loop<double, Swish>(hi, lo, in, n, p);
}
void swish_grad_f64(void* hi, void* lo, const void* const* in, std::int64_t n, const double* p) {
  binary_loop<double, SwishGrad<double>>(hi, lo, in, n, p);
}
void log2_f64(void* hi, void* lo, const void* const* in, std::int64_t n, const double* p) {
  unary_loop<double, Log2<double>>(hi, lo, in, n, p);
}

}  // namespace popsr::kernels
