#include "popsr/kernels/level/reduce/softmax.h"

#include "popsr/kernels/level/math/functions_f32-inl.h"
#include "popsr/kernels/level/math/functions_f64-inl.h"
#include "popsr/kernels/level/simd/lanes-inl.h"

namespace popsr::kernels {
namespace {

template <class T>
void softmax_row(void* out, const void* in, std::int64_t n) {
  if (n == 0) return;
  const T* x = static_cast<const T*>(in);
  T* y = static_cast<T*>(out);
  const T largest = extreme_of<T, true>(x, n);
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) y[i] = exp_of(x[i] - largest);
  const T sum = lane_sum<T, false>(y, n).hi;
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) y[i] = y[i] / sum;
}

}  // namespace

void softmax_f32(void* out, const void* in, std::int64_t n) { softmax_row<float>(out, in, n); }
void softmax_f64(void* out, const void* in, std::int64_t n) { softmax_row<double>(out, in, n); }

}  // namespace popsr::kernels
