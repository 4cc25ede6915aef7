// Comparisons, selection and rounding to integers: operations whose results are exact.
#include "popsr/kernels/level/math/elementwise-inl.h"
#include "popsr/kernels/level/math/extremes-inl.h"

namespace popsr::kernels {
namespace {

// Comparisons and classes: 1 or 0 in the compute type

struct EqualMask {
  static constexpr bool kIgnoresSign = true;
  template <class T>
  [[gnu::always_inline]] static T apply(T a, T b) {
    return a == b ? static_cast<T>(1) : static_cast<T>(0);
  }
};

struct Greater {
  template <class T>
  [[gnu::always_inline]] static T apply(T a, T b) {
    return a > b ? static_cast<T>(1) : static_cast<T>(0);
  }
};

struct NotEqual {
  static constexpr bool kIgnoresSign = true;
  template <class T>
  [[gnu::always_inline]] static T apply(T a, T b) {
    return a != b ? static_cast<T>(1) : static_cast<T>(0);
  }
};

struct LessEqual {
  template <class T>
  [[gnu::always_inline]] static T apply(T a, T b) {
    return a <= b ? static_cast<T>(1) : static_cast<T>(0);
  }
};

struct LogicalNot {
  static constexpr bool kIgnoresSign = true;
  template <class T>
  [[gnu::always_inline]] static T apply(T a) {
    return a == 0 ? static_cast<T>(1) : static_cast<T>(0);
  }
};

struct IsNan {
  static constexpr bool kIgnoresSign = true;
  template <class T>
  [[gnu::always_inline]] static T apply(T a) {
    return a != a ? static_cast<T>(1) : static_cast<T>(0);
  }
};

struct IsInf {
  static constexpr bool kIgnoresSign = true;
  template <class T>
  [[gnu::always_inline]] static T apply(T a) {
    if constexpr (Traits<T>::kFloat)
      return magnitude(a) == static_cast<T>(kInfF64) ? static_cast<T>(1) : static_cast<T>(0);
    else
      return 0;
  }
};

struct IsFinite {
  static constexpr bool kIgnoresSign = true;
  template <class T>
  [[gnu::always_inline]] static T apply(T a) {
    if constexpr (Traits<T>::kFloat)
      return magnitude(a) < static_cast<T>(kInfF64) ? static_cast<T>(1) : static_cast<T>(0);
    else
      return 1;
  }
};

// Selection

struct Select {
  static constexpr bool kIgnoresSign = true;
  template <class T>
  [[gnu::always_inline]] static T apply(T condition, T a, T b) {
    return condition != 0 ? a : b;
  }
};

struct Clip {
  template <class T>
  [[gnu::always_inline]] static T apply(T x, const T* p) {
    const T raised = x < p[0] ? p[0] : x;
    return raised > p[1] ? p[1] : raised;
  }
};

struct ClipGrad {
  template <class T>
  [[gnu::always_inline]] static T apply(T y, T dy, const T* p) {
    return (y == p[0]) | (y == p[1]) ? static_cast<T>(0) : dy;
  }
};

struct Relu {
  template <class T>
  [[gnu::always_inline]] static T apply(T a) {
    return a <= 0 ? static_cast<T>(0) : a;  // NaN is not <= 0 and stays.
  }
  /// On the words as they are stored: nothing is rounded.
  static void run_bf16(void* hi, void*, const void* const* in, std::int64_t n, const double*) {
    const std::uint16_t* x = static_cast<const std::uint16_t*>(in[0]);
    std::uint16_t* out = static_cast<std::uint16_t*>(hi);
#pragma GCC ivdep
    for (std::int64_t i = 0; i < n; ++i) {
      const std::uint16_t a = x[i];
      const std::uint16_t number = static_cast<std::int16_t>(a) < 0 ? 0 : a;
      const std::uint16_t nan = static_cast<std::uint16_t>((a & 0x8000U) | 0x7fc0U);
      out[i] = static_cast<std::int16_t>(a & 0x7fffU) > 0x7f80 ? nan : number;
    }
  }
};

struct ReluGrad {
  template <class T>
  [[gnu::always_inline]] static T apply(T x, T dy) {
    return x > 0 ? dy : static_cast<T>(0);
  }
};

// Rounding to integers

struct Floor {
  static constexpr bool kIgnoresSign = true;
  template <class T>
  [[gnu::always_inline]] static T apply(T a) {
    if constexpr (!Traits<T>::kFloat)
      return a;
    else if constexpr (sizeof(T) == sizeof(float))
      return __builtin_floorf(a);
    else
      return __builtin_floor(a);
  }
};

struct Ceil {
  static constexpr bool kIgnoresSign = true;
  template <class T>
  [[gnu::always_inline]] static T apply(T a) {
    if constexpr (!Traits<T>::kFloat)
      return a;
    else if constexpr (sizeof(T) == sizeof(float))
      return __builtin_ceilf(a);
    else
      return __builtin_ceil(a);
  }
};

struct Trunc {
  static constexpr bool kIgnoresSign = true;
  template <class T>
  [[gnu::always_inline]] static T apply(T a) {
    if constexpr (!Traits<T>::kFloat)
      return a;
    else if constexpr (sizeof(T) == sizeof(float))
      return __builtin_truncf(a);
    else
      return __builtin_trunc(a);
  }
};

/// From 2^23 or 2^52 on every number is an integer; adding that to a smaller one rounds it.
struct RoundEven {
  static constexpr bool kIgnoresSign = true;
  template <class T>
  [[gnu::always_inline]] static T apply(T a) {
    if constexpr (!Traits<T>::kFloat) {
      return a;
    } else {
      const T magic = sizeof(T) == sizeof(float) ? static_cast<T>(0x1p23) : static_cast<T>(0x1p52);
      const T size = magnitude(a);
      return size < magic ? with_sign((size + magic) - magic, a) : a;
    }
  }
};

struct RoundAway {
  static constexpr bool kIgnoresSign = true;
  template <class T>
  [[gnu::always_inline]] static T apply(T a) {
    if constexpr (!Traits<T>::kFloat) {
      return a;
    } else {
      const T whole = Trunc::apply(magnitude(a));
      const T step = magnitude(a) - whole >= static_cast<T>(0.5) ? static_cast<T>(1) : static_cast<T>(0);
      return a != a ? a : with_sign(whole + step, a);
    }
  }
};

struct CopySign {
  template <class T>
  [[gnu::always_inline]] static T apply(T a, T sign) {
    return with_sign(a, sign);
  }
};

struct Sign {
  template <class T>
  [[gnu::always_inline]] static T apply(T a) {
    const T not_positive = a < 0 ? static_cast<T>(-1) : static_cast<T>(0);
    return a > 0 ? static_cast<T>(1) : not_positive;
  }
};

}  // namespace

constexpr ElementwiseKernels kEqualMaskKernels = kernels_of<EqualMask, ElementwiseOp::kEqualMask>();
constexpr ElementwiseKernels kGreaterKernels = kernels_of<Greater, ElementwiseOp::kGreater>();
constexpr ElementwiseKernels kNotEqualKernels = kernels_of<NotEqual, ElementwiseOp::kNotEqual>();
constexpr ElementwiseKernels kLessEqualKernels = kernels_of<LessEqual, ElementwiseOp::kLessEqual>();
constexpr ElementwiseKernels kLogicalNotKernels = kernels_of<LogicalNot, ElementwiseOp::kLogicalNot>();
constexpr ElementwiseKernels kIsNanKernels = kernels_of<IsNan, ElementwiseOp::kIsNan>();
constexpr ElementwiseKernels kIsInfKernels = kernels_of<IsInf, ElementwiseOp::kIsInf>();
constexpr ElementwiseKernels kIsFiniteKernels = kernels_of<IsFinite, ElementwiseOp::kIsFinite>();
constexpr ElementwiseKernels kSelectKernels = kernels_of<Select, ElementwiseOp::kSelect>();
constexpr ElementwiseKernels kMaximumKernels = kernels_of<Maximum, ElementwiseOp::kMaximum>();
constexpr ElementwiseKernels kMinimumKernels = kernels_of<Minimum, ElementwiseOp::kMinimum>();
constexpr ElementwiseKernels kClipKernels = kernels_of<Clip, ElementwiseOp::kClip>();
constexpr ElementwiseKernels kClipGradKernels = kernels_of<ClipGrad, ElementwiseOp::kClipGrad>();
constexpr ElementwiseKernels kReluKernels = kernels_of<Relu, ElementwiseOp::kRelu>();
constexpr ElementwiseKernels kReluGradKernels = kernels_of<ReluGrad, ElementwiseOp::kReluGrad>();
constexpr ElementwiseKernels kFloorKernels = kernels_of<Floor, ElementwiseOp::kFloor>();
constexpr ElementwiseKernels kCeilKernels = kernels_of<Ceil, ElementwiseOp::kCeil>();
constexpr ElementwiseKernels kTruncKernels = kernels_of<Trunc, ElementwiseOp::kTrunc>();
constexpr ElementwiseKernels kRoundEvenKernels = kernels_of<RoundEven, ElementwiseOp::kRoundEven>();
constexpr ElementwiseKernels kRoundAwayKernels = kernels_of<RoundAway, ElementwiseOp::kRoundAway>();
constexpr ElementwiseKernels kCopySignKernels = kernels_of<CopySign, ElementwiseOp::kCopySign>();
constexpr ElementwiseKernels kSignKernels = kernels_of<Sign, ElementwiseOp::kSign>();

}  // namespace popsr::kernels
