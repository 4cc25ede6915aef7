// Register tiles of the matrix product.
//
// The two operands of a tile play different parts: the "vec" operand fills vectors, the "row" operand is
// broadcast element by element. Every lane of every accumulator is one sequential chain over k, so the tile's
// shape, and which of A and B is the vec operand, change no bit.
#pragma once

#include "popsr/kernels/level/product/matmul_vec-inl.h"

namespace popsr::kernels {
namespace {

/// Destination of a chain, or of the sum of a fused reduction's chains.
template <class T>
struct Finish {
  enum Mode { kSet, kAdd, kScaledAdd };
  Mode mode = kSet;     ///< Epilogue: c = x; c = c + x; or c = alpha*c + beta*x.
  bool divide = false;  ///< True to divide afterwards: c = c / divisor.
  T alpha = 1, beta = 1, divisor = 1;
};

/// One tile: c[r*c_row + x] for `rows` rows (the kernel's own number) and `cols` columns.
template <class T>
struct Tile {
  const T* row;  ///< Row operand: row(r, k) = row[r*row_x + k*row_k].
  const T* vec;  ///< Vec operand: vec(k, x) = vec[k*vec_k + x].
  std::int64_t row_x, row_k, vec_k, k;
  T* c;
  std::int64_t c_row;
  bool resume = false;  ///< True if the chains continue from the contents of c, instead of +0.
  int cols;             ///< Number of columns; read by the kernels of partial vectors only.
  /// Rows of the vec operand of the next block, their distance and number: prefetched, as they lie far apart.
  const T* next = nullptr;
  std::int64_t next_k = 0, next_rows = 0;
};

template <class X, int Rows, int Vecs, bool Partial>
POPSR_INLINE void store_tile(const typename X::V (&acc)[Rows][Vecs], typename X::T* c, std::int64_t c_row,
                             int cols) {
#pragma GCC unroll 16
  for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 16
    for (int q = 0; q < Vecs; ++q) {
      auto* p = c + r * c_row + q * X::kLanes;
      if (Partial && q == Vecs - 1) {
        X::store_part(p, acc[r][q], cols - q * X::kLanes);
      } else {
        X::store(p, acc[r][q]);
      }
    }
}

template <class X, int Rows, int Vecs, bool Partial>
POPSR_INLINE void finish_tile(typename X::V (&acc)[Rows][Vecs], typename X::T* c, std::int64_t c_row,
                              int cols, const Finish<typename X::T>& finish) {
  using V = typename X::V;
  using F = Finish<typename X::T>;
  const auto old = [&](int r, int q) __attribute__((always_inline)) {
    const auto* p = c + r * c_row + q * X::kLanes;
    return Partial && q == Vecs - 1 ? X::load_part(p, cols - q * X::kLanes) : X::load(p);
  };
  if (finish.mode == F::kAdd) {
#pragma GCC unroll 16
    for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 16
      for (int q = 0; q < Vecs; ++q) acc[r][q] = old(r, q) + acc[r][q];
  } else if (finish.mode == F::kScaledAdd) {
    const V alpha = X::splat(finish.alpha), beta = X::splat(finish.beta);
#pragma GCC unroll 16
    for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 16
      for (int q = 0; q < Vecs; ++q) acc[r][q] = alpha * old(r, q) + beta * acc[r][q];
  }
  if (finish.divide) {
    const V divisor = X::splat(finish.divisor);
#pragma GCC unroll 16
    for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 16
      for (int q = 0; q < Vecs; ++q) acc[r][q] = acc[r][q] / divisor;
  }
  store_tile<X, Rows, Vecs, Partial>(acc, c, c_row, cols);
}

template <class X, int Rows, int Vecs, bool Partial>
POPSR_INLINE void resume_tile(typename X::V (&acc)[Rows][Vecs], const typename X::T* c, std::int64_t c_row,
                              int cols) {
#pragma GCC unroll 16
  for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 16
    for (int q = 0; q < Vecs; ++q) {
      const auto* p = c + r * c_row + q * X::kLanes;
      acc[r][q] = Partial && q == Vecs - 1 ? X::load_part(p, cols - q * X::kLanes) : X::load(p);
    }
}

template <class X, int Rows, int Vecs, bool Partial>
void micro(const Tile<typename X::T>& tile, const Finish<typename X::T>& finish) {
  using V = typename X::V;
  V acc[Rows][Vecs] = {};
  const auto* row = tile.row;
  const auto* vec = tile.vec;
  const std::int64_t row_x = tile.row_x, row_k = tile.row_k, vec_k = tile.vec_k;
  const int cols = tile.cols;
  const auto* next = tile.next == nullptr ? vec : tile.next;
  const std::int64_t next_k = tile.next_k, fetched = tile.k - tile.next_rows;
  if (tile.resume) resume_tile<X, Rows, Vecs, Partial>(acc, tile.c, tile.c_row, cols);
  for (std::int64_t k = tile.k; k > 0; --k) {
    V v[Vecs];
    __builtin_prefetch(next, 0, 2);
#pragma GCC unroll 16
    for (int q = 0; q < Vecs; ++q) v[q] = Partial ? X::load_part(vec, cols) : X::load(vec + q * X::kLanes);
#pragma GCC unroll 16
    for (int r = 0; r < Rows; ++r) {
      const V s = X::splat(row[r * row_x]);
#pragma GCC unroll 16
      for (int q = 0; q < Vecs; ++q) acc[r][q] = X::fma(s, v[q], acc[r][q]);
    }
    row += row_k;
    vec += vec_k;
    next += k > fetched ? next_k : 0;
  }
  finish_tile<X, Rows, Vecs, Partial>(acc, tile.c, tile.c_row, cols, finish);
}

}  // namespace
}  // namespace popsr::kernels
