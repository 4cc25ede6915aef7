// erf(x) = 2 / sqrt(pi) * integral of e^(-t^2) from 0 to x.
//
// Below 1, x + x Q(x^2 - 1/2). From there on 1 - e^(-P(x - 1)), where P approximates -log(erfc(x)): the
// factor erfc(x) <= 0.16 makes its errors small. Q and P are least-squares fits in Chebyshev points, P
// weighted with erfc: absolute errors of the result of 2^-57 for doubles and 2^-29 for floats. Worst errors
// in ulp: float 1.01 (bound 1.5), double 1.06 (bound 1.5).
#include "popsr/kernels/level/math/elementwise-inl.h"
#include "popsr/kernels/level/math/functions/erf_near-inl.h"
#include "popsr/kernels/level/math/functions/functions_f32-inl.h"
#include "popsr/kernels/level/math/functions/functions_f64-inl.h"

namespace popsr::kernels {
namespace {

/// erf(x) / x - 1 of w, as in erf_near-inl.h.
[[gnu::always_inline]] inline float erf_near(float w) {
  float q = 7.88686271e-5F;
  q = q * w - 0.0005654105737F;
  q = q * w + 0.003480175441F;
  q = q * w - 0.01828335621F;
  q = q * w + 0.07940999243F;
  q = q * w - 0.2810721946F;
  return q * w - 0.03453126138F;
}

/// -log(erfc(1 + s)), 0 <= s <= 5; floats: s <= 3.
[[gnu::always_inline]] inline double erfc_exponent(double s) {
  double q = 0x1.54d5c0b83f9d1p-38;
  q = q * s - 0x1.055b5ca0f4181p-33;
  q = q * s + 0x1.694e16976f619p-30;
  q = q * s - 0x1.23c3b80d9db05p-27;
  q = q * s + 0x1.1ded5322af0aap-25;
  q = q * s - 0x1.efe6f80a7ef66p-25;
  q = q * s - 0x1.b8fd0b028d628p-23;
  q = q * s + 0x1.1e3ec5f34414cp-19;
  q = q * s - 0x1.448b18c893e8fp-17;
  q = q * s + 0x1.c85525e30aa04p-16;
  q = q * s - 0x1.b92f2b8cd545ap-16;
  q = q * s - 0x1.f1b03acb6532bp-13;
  q = q * s + 0x1.033f59d34104bp-9;
  q = q * s - 0x1.48c9d37d2c85fp-7;
  q = q * s + 0x1.5477f099a6f46p-5;
  q = q * s + 0x1.afabc11a2b0a0p-1;
  q = q * s + 0x1.51c9b0006c219p+1;
  return q * s + 0x1.d97fbf27aa2a1p+0;
}
[[gnu::always_inline]] inline float erfc_exponent(float s) {
  float q = -1.860101806e-4F;
  q = q * s + 1.827714205e-3F;
  q = q * s - 9.892838724e-3F;
  q = q * s + 4.150174174e-2F;
  q = q * s + 8.431180971e-1F;
  q = q * s + 2.638966834F;
  return q * s + 1.849605516F;
}

struct Erf {
  template <class T>
  [[gnu::always_inline]] static T apply(T x) {
    const T one = 1;
    const T limit = sizeof(T) == sizeof(float) ? static_cast<T>(4) : static_cast<T>(6);  // 1 from here on
    const T a = magnitude(x);
    const T near = x + x * erf_near((a < one ? a * a : one) - static_cast<T>(0.5));
    const T far = one - exp_of(-erfc_exponent(at_most(at_least(a, one), limit) - one));
    return a < one ? near : with_sign(far, x);
  }
};

}  // namespace

constexpr ElementwiseKernels kErfKernels = kernels_of<Erf, ElementwiseOp::kErf>();

}  // namespace popsr::kernels
