// Exponentials and logarithms. Worst errors in ulp, measured against long double on dense samples and all
// binades (tests_cpp/kernels keeps the bounds); the same bits at every level.
//
//           float              double
//   exp     0.97  (bound 2)    0.79  (bound 2)
//   log     0.80  (bound 2)    0.80  (bound 2)
//   log2    0.501 (bound 0.51) 0.501 (bound 0.51)
//   tanh    1.33  (bound 2)    1.29  (bound 2)
#include "popsr/kernels/level/math/elementwise-inl.h"
#include "popsr/kernels/level/math/functions/functions_f32-inl.h"
#include "popsr/kernels/level/math/functions/functions_f64-inl.h"

namespace popsr::kernels {
namespace {

struct Exp {
  static constexpr bool kPacks = true;
  template <class F>
  [[gnu::always_inline]] static F apply(const F& x) {
    return exp_of(x);
  }
  [[gnu::always_inline]] static Floats apply_bf16(const Floats& x) { return exp_of_bf16(x); }
};

struct Log {
  template <class T>
  [[gnu::always_inline]] static T apply(T x) {
    return log_of(x);
  }
};

struct Log2 {
  template <class T>
  [[gnu::always_inline]] static T apply(T x) {
    return log2_of(x);
  }
};

struct Tanh {
  template <class T>
  [[gnu::always_inline]] static T apply(T x) {
    return tanh_of(x);
  }
};

struct TanhGrad {
  template <class T>
  [[gnu::always_inline]] static T apply(T y, T dy) {
    return dy * (static_cast<T>(1) - y * y);
  }
};

}  // namespace

constexpr ElementwiseKernels kExpKernels = kernels_of<Exp, ElementwiseOp::kExp>();
constexpr ElementwiseKernels kLogKernels = kernels_of<Log, ElementwiseOp::kLog>();
constexpr ElementwiseKernels kLog2Kernels = kernels_of<Log2, ElementwiseOp::kLog2>();
constexpr ElementwiseKernels kTanhKernels = kernels_of<Tanh, ElementwiseOp::kTanh>();
constexpr ElementwiseKernels kTanhGradKernels = kernels_of<TanhGrad, ElementwiseOp::kTanhGrad>();

}  // namespace popsr::kernels
