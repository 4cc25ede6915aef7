// Floating-point environment that kernels run in and host data is converted in.
#pragma once

#include <cfenv>

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace popsr::kernels {

/// Scope in which this thread rounds to nearest, keeps subnormals and masks exceptions; the destructor
/// restores the earlier settings. A library built with fast-math may have set flush-to-zero for the whole
/// process. Uses <cfenv>: for every CPU.
class PortableFloatEnvironment {
 public:
  PortableFloatEnvironment() {
    std::fegetenv(&saved_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~PortableFloatEnvironment() { std::fesetenv(&saved_); }
  PortableFloatEnvironment(const PortableFloatEnvironment&) = delete;
  PortableFloatEnvironment& operator=(const PortableFloatEnvironment&) = delete;

 private:
  std::fenv_t saved_ = {};
};

#if defined(__SSE__)

/// Scope that sets MXCSR alone, in a few nanoseconds: for kernels, none of which computes in x87. Foreign
/// code may, as feraiseexcept does.
class SseFloatEnvironment {
 public:
  SseFloatEnvironment() : saved_(_mm_getcsr()) {
    if (saved_ != kDefault) _mm_setcsr(kDefault);
  }
  ~SseFloatEnvironment() {
    if (_mm_getcsr() != saved_) _mm_setcsr(saved_);
  }
  SseFloatEnvironment(const SseFloatEnvironment&) = delete;
  SseFloatEnvironment& operator=(const SseFloatEnvironment&) = delete;

 private:
  static constexpr unsigned kDefault =
      0x1f80;  // Power-on value: all exceptions masked, nearest, no FTZ, no DAZ.
  unsigned saved_;
};

using FloatEnvironment = SseFloatEnvironment;

#else

using FloatEnvironment = PortableFloatEnvironment;

#endif

}  // namespace popsr::kernels
