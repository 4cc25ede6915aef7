// Reductions of products with short chains: the gradients of many replicas with small micro batches.
//
// Storing every product to memory would cost far more than computing it. A tile keeps its sum in registers
// beside the chain of one term; the operands, which are small, are packed as [term][k][lane].
#pragma once

#include "popsr/kernels/level/product/matmul_product-inl.h"

namespace popsr::kernels {
namespace {

template <class T>
struct ReducedTile {
  const T* row;  ///< Row operand, packed as [term][k][Rows].
  const T* vec;  ///< Vec operand, packed as [term][k][Vecs * lanes], zero beyond the last column.
  std::int64_t k, terms;
  bool first;  ///< True if the tile starts a sum; otherwise the sum so far is in C.
  T* c;
  std::int64_t c_row;
  int cols;
};

template <class X, int Rows, int Vecs, bool Partial>
POPSR_INLINE void load_tile(typename X::V (&sum)[Rows][Vecs], const ReducedTile<typename X::T>& tile) {
  const auto minus_zero =
      -typename X::T{0};  // The identity of an addition: +0 would turn a sum of -0 into +0.
#pragma GCC unroll 16
  for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 2
    for (int q = 0; q < Vecs; ++q) {
      const auto* p = tile.c + r * tile.c_row + q * X::kLanes;
      sum[r][q] = X::splat(minus_zero);
      if (!tile.first) sum[r][q] = Partial ? X::load_part(p, tile.cols) : X::load(p);
    }
}

/// Kernel of one tile. OneK: every chain has one step, so that the loop over k disappears.
template <class X, bool OneK, int Rows, int Vecs, bool Partial>
void micro_reduced(const ReducedTile<typename X::T>& tile, const Finish<typename X::T>& finish) {
  using V = typename X::V;
  V sum[Rows][Vecs];
  load_tile<X, Rows, Vecs, Partial>(sum, tile);
  const auto* row = tile.row;
  const auto* vec = tile.vec;
  for (std::int64_t term = tile.terms; term > 0; --term) {
    V acc[Rows][Vecs] = {};
    for (std::int64_t k = OneK ? 1 : tile.k; k > 0; --k) {
      V v[Vecs];
#pragma GCC unroll 2
      for (int q = 0; q < Vecs; ++q) v[q] = X::load(vec + q * X::kLanes);
#pragma GCC unroll 16
      for (int r = 0; r < Rows; ++r) {
        const V s = X::splat(row[r]);
#pragma GCC unroll 2
        for (int q = 0; q < Vecs; ++q) acc[r][q] = X::fma(s, v[q], acc[r][q]);
      }
      row += Rows;
      vec += Vecs * X::kLanes;
    }
#pragma GCC unroll 16
    for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 2
      for (int q = 0; q < Vecs; ++q) sum[r][q] = sum[r][q] + acc[r][q];
  }
  finish_tile<X, Rows, Vecs, Partial>(sum, tile.c, tile.c_row, tile.cols, finish);
}

template <class X>
using ReducedFn = void (*)(const ReducedTile<typename X::T>&, const Finish<typename X::T>&);

template <class X, bool OneK>
struct ReducedTable {
  ReducedFn<X> two[X::kReducedRows + 1] = {}, one[X::kReducedRows + 1] = {},
                                     partial[X::kReducedRows + 1] = {};
};

template <class X, bool OneK, int Rows>
constexpr void fill(ReducedTable<X, OneK>& table) {
  if constexpr (Rows > 0) {
    table.two[Rows] = micro_reduced<X, OneK, Rows, 2, false>;
    table.one[Rows] = micro_reduced<X, OneK, Rows, 1, false>;
    table.partial[Rows] = micro_reduced<X, OneK, Rows, 1, true>;
    fill<X, OneK, Rows - 1>(table);
  }
}

template <class X, bool OneK>
constexpr ReducedTable<X, OneK> make_reduced_table() {
  ReducedTable<X, OneK> table;
  fill<X, OneK, X::kReducedRows>(table);
  return table;
}
template <class X, bool OneK>
constexpr ReducedTable<X, OneK> kReduced = make_reduced_table<X, OneK>();

/// The kernels, by number of rows, of panels with `cols` columns.
template <class X, bool OneK>
const ReducedFn<X>* reduced_kernels(int cols) {
  const auto& table = kReduced<X, OneK>;
  return cols == 2 * X::kLanes ? table.two : cols == X::kLanes ? table.one : table.partial;
}

/// Chains [begin, end) of a product with their operands packed: rows as [chain][k][row] by tiles of
/// kReducedRows, panels of the vec operand as [chain][k][lane].
template <class X>
class PackedChains {
  using T = typename X::T;

 public:
  PackedChains(const Plan& plan, std::int64_t k, void* scratch)
      : plan_(plan),
        k_(k),
        vec_panel_(static_cast<T*>(scratch)),
        row_block_(vec_panel_ + plan.vec_bytes / static_cast<std::int64_t>(sizeof(T))) {}

  void take(Range chains) { chains_ = chains; }
  const T* panel() const { return vec_panel_; }
  /// Packed rows of a tile that starts `row` rows after the first one packed.
  const T* rows(std::int64_t row) const { return row_block_ + row * (chains_.end - chains_.begin) * k_; }
  static std::int64_t tiles_of(Range block) { return ceil_div(block.end - block.begin, X::kReducedRows); }
  static Range tile(Range block, std::int64_t q) {
    return piece(block.end - block.begin, 1, q, tiles_of(block));
  }

  /// Calls body(block, x, cols) for each block of rows and the columns x..x+cols-1, which are packed then.
  template <class Body>
  void for_each_panel(Range rows, Range cols, const Body& body) {
    for (std::int64_t r = rows.begin; r < rows.end; r += plan_.block_row) {
      const Range block = {r, at_most(rows.end, r + plan_.block_row)};
      pack_rows(block);
      int width = 0;
      for (std::int64_t x = cols.begin; x < cols.end; x += width) {
        width = panel_width<X>(cols.end - x);
        pack_panel_at(x, width);
        body(block, x, width);
      }
    }
  }

 private:
  void pack_rows(Range block) {
    const Side& row = plan_.row;
    T* dst = row_block_;
    for (std::int64_t q = 0; q < tiles_of(block); ++q) {
      const Range r = tile(block, q);
      const std::int64_t x = block.begin + r.begin, rows = r.end - r.begin;
      for (std::int64_t chain = chains_.begin; chain < chains_.end; ++chain) {
        const T* src = static_cast<const T*>(row.ptr[chain]) + x * row.x_stride;
        for (std::int64_t k = 0; k < k_; ++k)
          for (std::int64_t i = 0; i < rows; ++i) *dst++ = src[k * row.k_stride + i * row.x_stride];
      }
    }
  }

  /// Packs columns x..x+cols-1; lanes beyond the last are zero.
  void pack_panel_at(std::int64_t x, int cols) {
    const Side& vec = plan_.vec;
    const int width = static_cast<int>(ceil_div(cols, X::kLanes)) * X::kLanes;
    for (std::int64_t chain = chains_.begin; chain < chains_.end; ++chain)
      pack_panel<X>(vec_panel_ + (chain - chains_.begin) * k_ * width, width,
                    static_cast<const T*>(vec.ptr[chain]) + x * vec.x_stride, vec.k_stride, vec.x_stride, k_,
                    cols);
  }

  const Plan& plan_;
  std::int64_t k_;
  T *vec_panel_, *row_block_;
  Range chains_ = {0, 0};
};

template <class X>
class ReducedProduct {
  using T = typename X::T;
  using Chains = PackedChains<X>;

 public:
  ReducedProduct(const MatmulArgs& args, const Plan& plan, void* scratch)
      : args_(args), plan_(plan), chains_(plan, args.k, scratch) {}

  void run(Range rows, Range cols) {
    for (std::int64_t term = 0; term < plan_.terms; term += plan_.term_step) {
      terms_ = {term, at_most(plan_.terms, term + plan_.term_step)};
      chains_.take(terms_);
      chains_.for_each_panel(rows, cols,
                             [this](Range block, std::int64_t x, int width) { panel(block, x, width); });
    }
  }

 private:
  void panel(Range block, std::int64_t x, int cols) {
    ReducedTile<T> tile;
    tile.vec = chains_.panel();
    tile.k = args_.k;
    tile.terms = terms_.end - terms_.begin;
    tile.first = terms_.begin == 0;
    tile.c_row = args_.c_row;
    tile.cols = cols;
    const Finish<T> finish = finish_of<T>(args_, true, terms_.end == plan_.terms);
    const ReducedFn<X>* table =
        args_.k == 1 ? reduced_kernels<X, true>(cols) : reduced_kernels<X, false>(cols);
    for (std::int64_t q = 0; q < Chains::tiles_of(block); ++q) {
      const Range r = Chains::tile(block, q);
      tile.row = chains_.rows(r.begin);
      tile.c = static_cast<T*>(args_.c) + (block.begin + r.begin) * args_.c_row + x;
      table[r.end - r.begin](tile, finish);
    }
  }

  const MatmulArgs& args_;
  const Plan& plan_;
  Chains chains_;
  Range terms_ = {0, 0};
};

}  // namespace
}  // namespace popsr::kernels
