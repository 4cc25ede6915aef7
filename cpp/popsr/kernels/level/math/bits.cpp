// Operations on the bits of integers, which are in two's complement. Of bool: values are 0 and 1.
#include "popsr/kernels/level/math/elementwise-inl.h"

namespace popsr::kernels {
namespace {

template <class T>
inline constexpr unsigned kWidth = 8 * sizeof(T);

/// The bits of x, without copies of its sign above them.
template <class T>
[[gnu::always_inline]] inline Word<T> plain_bits(T x) {
  return static_cast<Word<T>>(x) & (~Word<T>{0} >> (8 * sizeof(Word<T>) - kWidth<T>));
}

struct BitAnd {
  static constexpr bool kIgnoresSign = true;
  template <class T>
  [[gnu::always_inline]] static T apply(T a, T b) {
    return static_cast<T>(a & b);
  }
};

struct BitOr {
  static constexpr bool kIgnoresSign = true;
  template <class T>
  [[gnu::always_inline]] static T apply(T a, T b) {
    return static_cast<T>(a | b);
  }
};

struct BitXor {
  static constexpr bool kIgnoresSign = true;
  template <class T>
  [[gnu::always_inline]] static T apply(T a, T b) {
    return static_cast<T>(a ^ b);
  }
};

struct BitNot {
  static constexpr bool kIgnoresSign = true;
  template <class T>
  [[gnu::always_inline]] static T apply(T a) {
    return static_cast<T>(~a);
  }
};

struct ShiftLeft {
  static constexpr bool kIgnoresSign = true;
  template <class T>
  [[gnu::always_inline]] static T apply(T a, T amount) {
    const Word<T> by = plain_bits(amount);
    const Word<T> shifted = static_cast<Word<T>>(a) << (by & (kWidth<T> - 1));
    return static_cast<T>(by < kWidth<T> ? shifted : 0);
  }
};

struct ShiftRightLogical {
  static constexpr bool kIgnoresSign = true;
  template <class T>
  [[gnu::always_inline]] static T apply(T a, T amount) {
    const Word<T> by = plain_bits(amount);
    const Word<T> shifted = plain_bits(a) >> (by & (kWidth<T> - 1));
    return static_cast<T>(by < kWidth<T> ? shifted : 0);
  }
};

/// Arithmetic shift, for unsigned integers too: the highest bit is copied. A shift by the width minus one
/// leaves nothing else.
struct ShiftRightArithmetic {
  static constexpr bool kIgnoresSign = true;
  template <class T>
  [[gnu::always_inline]] static T apply(T a, T amount) {
    const Word<T> by = plain_bits(amount);
    const Word<T> most = by < kWidth<T> ? by : kWidth<T> - 1;
    const Word<T> bits = plain_bits(a) >> most;
    const Word<T> sign = plain_bits(a) >> (kWidth<T> - 1);
    return static_cast<T>(bits | ((0 - sign) << (kWidth<T> - 1 - most)));
  }
};

struct PopulationCount {
  static constexpr bool kIgnoresSign = true;
  template <class T>
  [[gnu::always_inline]] static T apply(T a) {
    return static_cast<T>(__builtin_popcountll(plain_bits(a)));
  }
};

struct CountLeadingZeros {
  static constexpr bool kIgnoresSign = true;
  template <class T>
  [[gnu::always_inline]] static T apply(T a) {
    const std::uint64_t bits = plain_bits(a);
    const unsigned zeros = static_cast<unsigned>(__builtin_clzll(bits | 1U)) - (64 - kWidth<T>);
    return static_cast<T>(bits == 0 ? kWidth<T> : zeros);
  }
};

}  // namespace

constexpr ElementwiseKernels kBitAndKernels = kernels_of<BitAnd, ElementwiseOp::kBitAnd>();
constexpr ElementwiseKernels kBitOrKernels = kernels_of<BitOr, ElementwiseOp::kBitOr>();
constexpr ElementwiseKernels kBitXorKernels = kernels_of<BitXor, ElementwiseOp::kBitXor>();
constexpr ElementwiseKernels kBitNotKernels = kernels_of<BitNot, ElementwiseOp::kBitNot>();
constexpr ElementwiseKernels kShiftLeftKernels = kernels_of<ShiftLeft, ElementwiseOp::kShiftLeft>();
constexpr ElementwiseKernels kShiftRightLogicalKernels =
    kernels_of<ShiftRightLogical, ElementwiseOp::kShiftRightLogical>();
constexpr ElementwiseKernels kShiftRightArithmeticKernels =
    kernels_of<ShiftRightArithmetic, ElementwiseOp::kShiftRightArithmetic>();
constexpr ElementwiseKernels kPopulationCountKernels =
    kernels_of<PopulationCount, ElementwiseOp::kPopulationCount>();
constexpr ElementwiseKernels kCountLeadingZerosKernels =
    kernels_of<CountLeadingZeros, ElementwiseOp::kCountLeadingZeros>();

}  // namespace popsr::kernels
