// Finishing a tile of chains that lies in memory: transposed into C, or after the blocks of a long chain.
#pragma once

#include "popsr/kernels/level/product/matmul_micro-inl.h"
#include "popsr/kernels/level/product/matmul_pack-inl.h"

namespace popsr::kernels {
namespace {

/// Finishes the chain x (an element or a vector) for the element `old` of C.
template <class V, class T>
POPSR_INLINE void combine(V& x, const V& old, const Finish<T>& finish) {
  using F = Finish<T>;
  if (finish.mode == F::kAdd) x = old + x;
  if (finish.mode == F::kScaledAdd) x = finish.alpha * old + finish.beta * x;
  if (finish.divide) x = x / finish.divisor;
}

template <class T>
void finish_element(T* c, T x, const Finish<T>& finish) {
  const T old = finish.mode == Finish<T>::kSet ? T{0} : *c;
  combine(x, old, finish);
  *c = x;
}

/// Stores c[x*c_row + r] from tile[r*width + x], 4 x 4 elements at a time.
template <class T>
void finish_transposed(const T* tile, int width, int rows, int cols, T* c, std::int64_t c_row,
                       const Finish<T>& finish) {
  using B = Block4<T>;
  const int rows4 = rows / 4 * 4, cols4 = cols / 4 * 4;
  const bool reads = finish.mode != Finish<T>::kSet;
  for (int x = 0; x < cols4; x += 4) {
    for (int r = 0; r < rows4; r += 4) {
      typename B::V block[4];
      load_transposed4(tile + r * width + x, width, block);
      for (int q = 0; q < 4; ++q) {
        auto* p = reinterpret_cast<typename B::Unaligned*>(c + (x + q) * c_row + r);
        typename B::V old = {};
        if (reads) old = *p;
        combine(block[q], old, finish);
        *p = block[q];
      }
    }
  }
  for (int x = 0; x < cols; ++x)
    for (int r = x < cols4 ? rows4 : 0; r < rows; ++r)
      finish_element(c + x * c_row + r, tile[r * width + x], finish);
}

/// Stores c[r*c_row + x] from tile[r*width + x].
template <class T>
void finish_straight(const T* tile, int width, int rows, int cols, T* c, std::int64_t c_row,
                     const Finish<T>& finish) {
  for (int r = 0; r < rows; ++r)
    for (int x = 0; x < cols; ++x) finish_element(c + r * c_row + x, tile[r * width + x], finish);
}

}  // namespace
}  // namespace popsr::kernels
