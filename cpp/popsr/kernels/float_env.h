// The floating-point environment that kernels run in.
#pragma once

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace popsr::kernels {

/// While it lives, this thread rounds to nearest, keeps subnormals and masks exceptions; the destructor
/// restores what was set before. A library built with fast-math may have set flush-to-zero for the whole
/// process.
class FloatEnvironment {
 public:
  FloatEnvironment(const FloatEnvironment&) = delete;
  FloatEnvironment& operator=(const FloatEnvironment&) = delete;

#if defined(__SSE__)
  FloatEnvironment() : saved_(_mm_getcsr()) {
    if (saved_ != kDefault) _mm_setcsr(kDefault);
  }
  ~FloatEnvironment() {
    if (_mm_getcsr() != saved_) _mm_setcsr(saved_);
  }

 private:
  static constexpr unsigned kDefault =
      0x1f80;  // Power-on value: all exceptions masked, nearest, no FTZ, no DAZ.
  unsigned saved_;
#else
  FloatEnvironment() {}
  ~FloatEnvironment() {}
#endif
};

}  // namespace popsr::kernels
