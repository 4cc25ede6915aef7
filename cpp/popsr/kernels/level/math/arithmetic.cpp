// Sums, products, signs and square roots. Arithmetic of integers wraps: it runs in an unsigned word of at
// least 32 bits and is cut to T.
#include "popsr/kernels/level/math/elementwise-inl.h"

namespace popsr::kernels {
namespace {

struct Add {
  static constexpr bool kIgnoresSign = true;
  template <class T>
  [[gnu::always_inline]] static T apply(T a, T b) {
    if constexpr (Traits<T>::kFloat)
      return a + b;
    else
      return static_cast<T>(static_cast<Word<T>>(a) + static_cast<Word<T>>(b));
  }
  template <class T>
  [[gnu::always_inline]] static T residual(T sum, T a, T b) {
    return sum_residual(sum, a, b);
  }
};

struct Sub {
  static constexpr bool kIgnoresSign = true;
  template <class T>
  [[gnu::always_inline]] static T apply(T a, T b) {
    if constexpr (Traits<T>::kFloat)
      return a - b;
    else
      return static_cast<T>(static_cast<Word<T>>(a) - static_cast<Word<T>>(b));
  }
  template <class T>
  [[gnu::always_inline]] static T residual(T sum, T a, T b) {
    return sum_residual(sum, a, -b);
  }
};

struct Mul {
  static constexpr bool kIgnoresSign = true;
  template <class T>
  [[gnu::always_inline]] static T apply(T a, T b) {
    if constexpr (Traits<T>::kFloat)
      return a * b;
    else
      return static_cast<T>(static_cast<Word<T>>(a) * static_cast<Word<T>>(b));
  }
};

struct Div {
  template <class T>
  [[gnu::always_inline]] static T apply(T a, T b) {
    if constexpr (Traits<T>::kFloat) {
      return a / b;
    } else {
      if (b == 0) return 0;
      if constexpr (Traits<T>::kSigned) {
        if (b == static_cast<T>(-1))
          return static_cast<T>(0 - static_cast<Word<T>>(a));  // lowest / -1 wraps.
      }
      return static_cast<T>(a / b);
    }
  }
};

struct Scale {
  template <class T>
  [[gnu::always_inline]] static T apply(T a, const T* p) {
    return Mul::apply(p[0], a);
  }
};

struct ScaledAdd {
  template <class T>
  [[gnu::always_inline]] static T apply(T a, T b, const T* p) {
    return Add::apply(Mul::apply(p[0], a), Mul::apply(p[1], b));
  }
  template <class T>
  [[gnu::always_inline]] static T residual(T sum, T a, T b, const T* p) {
    return sum_residual(sum, p[0] * a, p[1] * b);
  }
};

struct Negate {
  static constexpr bool kIgnoresSign = true;
  template <class T>
  [[gnu::always_inline]] static T apply(T a) {
    if constexpr (Traits<T>::kFloat)
      return -a;
    else
      return static_cast<T>(0 - static_cast<Word<T>>(a));
  }
};

struct Abs {
  template <class T>
  [[gnu::always_inline]] static T apply(T a) {
    if constexpr (Traits<T>::kFloat)
      return magnitude(a);
    else
      return a < 0 ? Negate::apply(a) : a;
  }
};

/// NaN where x is NaN, which has no sign.
struct AbsGrad {
  template <class T>
  [[gnu::always_inline]] static T apply(T x, T dy) {
    const T at_zero_or_nan = x == 0 ? static_cast<T>(0) : x;
    const T downhill = x < 0 ? -dy : at_zero_or_nan;
    return x > 0 ? dy : downhill;
  }
};

struct Sqrt {
  template <class T>
  [[gnu::always_inline]] static T apply(T a) {
    if constexpr (sizeof(T) == sizeof(float))
      return __builtin_sqrtf(a);
    else
      return __builtin_sqrt(a);
  }
};

/// Worst error 1.48 ulp (bound 1.5).
struct Rsqrt {
  template <class T>
  [[gnu::always_inline]] static T apply(T a) {
    return static_cast<T>(1) / Sqrt::apply(a);
  }
};

}  // namespace

constexpr ElementwiseKernels kAddKernels = kernels_of<Add, ElementwiseOp::kAdd>();
constexpr ElementwiseKernels kSubKernels = kernels_of<Sub, ElementwiseOp::kSub>();
constexpr ElementwiseKernels kMulKernels = kernels_of<Mul, ElementwiseOp::kMul>();
constexpr ElementwiseKernels kDivKernels = kernels_of<Div, ElementwiseOp::kDiv>();
constexpr ElementwiseKernels kScaleKernels = kernels_of<Scale, ElementwiseOp::kScale>();
constexpr ElementwiseKernels kScaledAddKernels = kernels_of<ScaledAdd, ElementwiseOp::kScaledAdd>();
constexpr ElementwiseKernels kNegateKernels = kernels_of<Negate, ElementwiseOp::kNegate>();
constexpr ElementwiseKernels kAbsKernels = kernels_of<Abs, ElementwiseOp::kAbs>();
constexpr ElementwiseKernels kAbsGradKernels = kernels_of<AbsGrad, ElementwiseOp::kAbsGrad>();
constexpr ElementwiseKernels kSqrtKernels = kernels_of<Sqrt, ElementwiseOp::kSqrt>();
constexpr ElementwiseKernels kRsqrtKernels = kernels_of<Rsqrt, ElementwiseOp::kRsqrt>();

}  // namespace popsr::kernels
