// The elementwise loops. An operation is a struct with a static apply() on values, so that one loop serves
// all.
//
// "ivdep": outputs may alias an input exactly, which the vectoriser need not guard against because every
// iteration loads before it stores; without it in-place calls would take a scalar path.
#pragma once

#include "popsr/kernels/level/common-inl.h"

namespace popsr::kernels {
namespace {

template <class T, class Op>
void unary_loop(void* hi, void*, const void* const* in, std::int64_t n, const double*) {
  const T* x = static_cast<const T*>(in[0]);
  T* out = static_cast<T*>(hi);
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) out[i] = Op::apply(x[i]);
}

template <class T, class Op>
void binary_loop(void* hi, void*, const void* const* in, std::int64_t n, const double*) {
  const T* x = static_cast<const T*>(in[0]);
  const T* y = static_cast<const T*>(in[1]);
  T* out = static_cast<T*>(hi);
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) out[i] = Op::apply(x[i], y[i]);
}

}  // namespace
}  // namespace popsr::kernels
