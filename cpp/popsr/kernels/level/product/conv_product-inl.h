// Products over images, tile by tile: like matmul_product-inl.h, but each step finds its vectors by an
// offset.
#pragma once

#include "popsr/kernels/level/product/conv.h"
#include "popsr/kernels/level/product/matmul_product-inl.h"

namespace popsr::kernels {
namespace {

template <class T>
struct ConvTile {
  const T* row;  ///< Row operand: row(r, k) = row[r*row_x + k*row_k].
  std::int64_t row_x, row_k;
  const T* x;
  const std::int64_t* offset;
  std::int64_t k;
  T* c;
  std::int64_t c_row;
  int cols;  ///< Number of columns; read by the kernels of partial vectors only.
  bool add;
};

template <class X, int Rows, int Vecs, bool Partial>
void conv_micro(const ConvTile<typename X::T>& tile) {
  using V = typename X::V;
  V acc[Rows][Vecs] = {};
  const auto* row = tile.row;
  const std::int64_t row_x = tile.row_x, row_k = tile.row_k;
  const int cols = tile.cols;
  for (std::int64_t k = 0; k < tile.k; ++k) {
    const auto* x = tile.x + tile.offset[k];
    V v[Vecs];
#pragma GCC unroll 2
    for (int q = 0; q < Vecs; ++q) v[q] = Partial ? X::load_part(x, cols) : X::load(x + q * X::kLanes);
#pragma GCC unroll 16
    for (int r = 0; r < Rows; ++r) {
      const V s = X::splat(row[r * row_x]);
#pragma GCC unroll 2
      for (int q = 0; q < Vecs; ++q) acc[r][q] = X::fma(s, v[q], acc[r][q]);
    }
    row += row_k;
  }
  Finish<typename X::T> finish;
  if (tile.add) finish.mode = Finish<typename X::T>::kAdd;
  finish_tile<X, Rows, Vecs, Partial>(acc, tile.c, tile.c_row, cols, finish);
}

template <class X>
using ConvMicroFn = void (*)(const ConvTile<typename X::T>&);

template <class X>
struct ConvKernels {
  using Fn = ConvMicroFn<X>;
  template <int Rows, int Vecs, bool Partial>
  static constexpr Fn get() {
    return conv_micro<X, Rows, Vecs, Partial>;
  }
};
template <class X>
constexpr auto kConv = make_micro_table<X, ConvKernels<X>>();

/// Chains of one tile, one block of steps after the other.
template <class X>
void conv_tile(ConvTile<typename X::T> tile, ConvMicroFn<X> kernel, std::int64_t steps) {
  const std::int64_t block = steps > kLongChain ? kBlockK : steps;
  do {  // Without a step the chains are +0.
    tile.k = at_most(block, steps);
    kernel(tile);
    tile.row += tile.k * tile.row_k;
    tile.offset += tile.k;
    tile.add = true;
    steps -= tile.k;
  } while (steps > 0);
}

template <class X>
void conv(const ConvArgs& args) {
  using T = typename X::T;
  const std::int64_t tiles = ceil_div(args.m, X::kRows);
  const auto first_row = [&](std::int64_t q) { return args.m * q / tiles; };
  std::int64_t cols = 0;
  for (std::int64_t j = 0; j < args.n; j += cols) {
    cols = panel_width<X>(args.n - j);
    const auto& table = cols == 2 * X::kLanes ? kConv<X>.two
                        : cols == X::kLanes   ? kConv<X>.one
                                              : kConv<X>.partial;
    for (std::int64_t q = args.first_tile; q < args.last_tile; ++q) {
      const std::int64_t r = first_row(q), rows = first_row(q + 1) - r;
      ConvTile<T> tile;
      const bool packed = args.a_row == 0;
      tile.row = static_cast<const T*>(args.a) + r * (packed ? args.k : args.a_row);
      tile.row_x = packed ? 1 : args.a_row;
      tile.row_k = packed ? rows : 1;
      tile.x = static_cast<const T*>(args.x) + j;
      tile.offset = args.offset;
      tile.c = static_cast<T*>(args.c) + (r - first_row(args.first_tile)) * args.c_row + j;
      tile.c_row = args.c_row;
      tile.cols = static_cast<int>(cols);
      tile.add = args.add;
      conv_tile<X>(tile, table[rows], args.k);
    }
  }
}

template <class X>
void pack(void* to, std::int64_t width, const void* from, std::int64_t from_k, std::int64_t from_x,
          std::int64_t k, std::int64_t cols) {
  using T = typename X::T;
  pack_panel<X>(static_cast<T*>(to), static_cast<int>(width), static_cast<const T*>(from), from_k, from_x, k,
                static_cast<int>(cols));
}

}  // namespace
}  // namespace popsr::kernels
