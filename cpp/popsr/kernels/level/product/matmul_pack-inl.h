// Copies of operands and tiles of the matrix product: panels with contiguous vectors, transposed tiles.
#pragma once

#include "popsr/kernels/level/product/matmul_vec-inl.h"

namespace popsr::kernels {
namespace {

template <class T>
struct Block4 {
  typedef T V __attribute__((vector_size(4 * sizeof(T))));
  typedef T Unaligned __attribute__((vector_size(4 * sizeof(T)), aligned(sizeof(T)), may_alias));
};

/// Transposes the 4 x 4 elements at `src` (rows `src_row` apart) into x.
template <class T>
POPSR_INLINE void load_transposed4(const T* src, std::int64_t src_row, typename Block4<T>::V (&x)[4]) {
  using B = Block4<T>;
  using V = typename B::V;
  using U = typename B::Unaligned;
  const V r0 = *reinterpret_cast<const U*>(src), r1 = *reinterpret_cast<const U*>(src + src_row);
  const V r2 = *reinterpret_cast<const U*>(src + 2 * src_row),
          r3 = *reinterpret_cast<const U*>(src + 3 * src_row);
  const V t0 = __builtin_shufflevector(r0, r1, 0, 4, 1, 5), t1 = __builtin_shufflevector(r0, r1, 2, 6, 3, 7);
  const V t2 = __builtin_shufflevector(r2, r3, 0, 4, 1, 5), t3 = __builtin_shufflevector(r2, r3, 2, 6, 3, 7);
  x[0] = __builtin_shufflevector(t0, t2, 0, 1, 4, 5);
  x[1] = __builtin_shufflevector(t0, t2, 2, 3, 6, 7);
  x[2] = __builtin_shufflevector(t1, t3, 0, 1, 4, 5);
  x[3] = __builtin_shufflevector(t1, t3, 2, 3, 6, 7);
}

/// Packs a panel of k x `cols` elements of an operand with strides src_k and src_x, as dst[k*width + x].
/// The lanes from cols to width are zero; they only feed lanes that are discarded.
template <class X>
void pack_panel(typename X::T* dst, int width, const typename X::T* src, std::int64_t src_k,
                std::int64_t src_x, std::int64_t k, int cols) {
  using T = typename X::T;
  if (cols < width) {
    for (std::int64_t kk = 0; kk < k; ++kk)
      for (int x = cols; x < width; ++x) dst[kk * width + x] = T{0};
  }
  if (src_x == 1) {
    for (std::int64_t kk = 0; kk < k; ++kk) {
      int x = 0;
      for (; x + X::kLanes <= cols; x += X::kLanes)
        X::store(dst + kk * width + x, X::load(src + kk * src_k + x));
      for (; x < cols; ++x) dst[kk * width + x] = src[kk * src_k + x];
    }
    return;
  }
  const int cols4 = src_k == 1 ? cols / 4 * 4 : 0;
  const std::int64_t k4 = src_k == 1 ? k / 4 * 4 : 0;
  for (int x = 0; x < cols4; x += 4) {
    for (std::int64_t kk = 0; kk < k4; kk += 4) {
      typename Block4<T>::V block[4];
      load_transposed4(src + x * src_x + kk, src_x, block);
      for (int q = 0; q < 4; ++q)
        *reinterpret_cast<typename Block4<T>::Unaligned*>(dst + (kk + q) * width + x) = block[q];
    }
  }
  for (std::int64_t kk = 0; kk < k; ++kk)
    for (int x = kk < k4 ? cols4 : 0; x < cols; ++x) dst[kk * width + x] = src[kk * src_k + x * src_x];
}

}  // namespace
}  // namespace popsr::kernels
