// Products tile by tile: each chain is finished in registers and stored once.
#pragma once

#include "popsr/kernels/level/product/matmul_finish-inl.h"
#include "popsr/kernels/level/product/matmul_plan-inl.h"

namespace popsr::kernels {
namespace {

template <class X>
using MicroFn = void (*)(const Tile<typename X::T>&, const Finish<typename X::T>&);

template <class X>
struct ProductKernels {
  using Fn = MicroFn<X>;
  template <int Rows, int Vecs, bool Partial>
  static constexpr Fn get() {
    return micro<X, Rows, Vecs, Partial>;
  }
};

/// Kernels by panel shape (two vectors, one, part of one) and number of rows. `Kernels` as ProductKernels.
template <class X, class Kernels>
struct MicroTable {
  using Fn = typename Kernels::Fn;
  Fn two[X::kRows + 1] = {}, one[X::kRows + 1] = {}, partial[X::kRows + 1] = {};
};

template <int Rows, class X, class Kernels>
constexpr void fill(MicroTable<X, Kernels>& table) {
  if constexpr (Rows > 0) {
    table.two[Rows] = Kernels::template get<Rows, 2, false>();
    table.one[Rows] = Kernels::template get<Rows, 1, false>();
    table.partial[Rows] = Kernels::template get<Rows, 1, true>();
    fill<Rows - 1>(table);
  }
}

template <class X, class Kernels>
constexpr MicroTable<X, Kernels> make_micro_table() {
  MicroTable<X, Kernels> table;
  fill<X::kRows>(table);
  return table;
}
template <class X>
constexpr auto kMicro = make_micro_table<X, ProductKernels<X>>();

/// Kernels of few rows and wide panels, by number of rows.
template <class X>
struct WideTable {
  MicroFn<X> of[X::kWideRows + 1] = {};
  MicroFn<X> widest[2] = {nullptr, micro<X, 1, X::kWidestVecs, false>};
};
template <int Rows, class X>
constexpr void fill(WideTable<X>& table) {
  if constexpr (Rows > 0) {
    table.of[Rows] = micro<X, Rows, X::kWideVecs, false>;
    fill<Rows - 1>(table);
  }
}
template <class X>
constexpr WideTable<X> make_wide_table() {
  WideTable<X> table;
  fill<X::kWideRows>(table);
  return table;
}
template <class X>
constexpr WideTable<X> kWide = make_wide_table<X>();

/// Number of columns of the panel that starts `left` columns before the end.
template <class X>
int panel_width(std::int64_t left) {
  if (left >= 2 * X::kLanes) return 2 * X::kLanes;
  return static_cast<int>(at_most(left, X::kLanes));
}

/// Accumulation of a term into C.
template <class T>
Finish<T> finish_of(const MatmulArgs& args, bool first, bool last) {
  using E = MatmulArgs::Epilogue;
  Finish<T> finish;
  if (args.epilogue == E::kScaledAdd) {
    finish.mode = Finish<T>::kScaledAdd;
    finish.alpha = static_cast<T>(args.alpha);
    finish.beta = static_cast<T>(args.beta);
  }
  if (args.epilogue == E::kReduce) {
    if (!first) finish.mode = Finish<T>::kAdd;
    finish.divide = last && args.divisor != 1.0;
    finish.divisor = static_cast<T>(args.divisor);
  }
  return finish;
}

template <class X>
class Product {
  using T = typename X::T;
  static constexpr int kWidth = 2 * X::kLanes, kWideWidth = X::kWideVecs * X::kLanes,
                       kWidestWidth = X::kWidestVecs * X::kLanes;

 public:
  Product(const MatmulArgs& args, const Plan& plan, void* scratch)
      : args_(args),
        plan_(plan),
        vec_panels_{static_cast<T*>(scratch),
                    static_cast<T*>(scratch) +
                        plan.vec_bytes / (plan.pack_ahead ? 2 : 1) / static_cast<std::int64_t>(sizeof(T))},
        row_block_(static_cast<T*>(scratch) + plan.vec_bytes / static_cast<std::int64_t>(sizeof(T))),
        chains_(row_block_ + plan.row_bytes / static_cast<std::int64_t>(sizeof(T))) {}

  void run(Range rows, Range cols) {
    for (std::int64_t r = rows.begin; r < rows.end; r += plan_.block_row) {
      rows_ = {r, at_most(rows.end, r + plan_.block_row)};
      const int unit = plan_.swapped && X::kRows % 4 == 0 ? 4 : 1;  // Whole blocks of finish_transposed.
      unit_ = unit;
      tiles_ = ceil_div(ceil_div(rows_.end - r, unit), X::kRows / unit);
      if (plan_.pack_row) pack_row_block();
      end_ = cols.end;
      is_packed_ = false;
      for (std::int64_t x = cols.begin; x < cols.end; x += cols_) {
        cols_ = width_of(cols.end - x);
        panel(x);
      }
    }
  }

 private:
  /// Steps of a block as they lie in the vec operand.
  struct Strip {
    const T* begin = nullptr;
    std::int64_t length = 0;
    int cols = 0;
  };

  std::int64_t width_of(std::int64_t left) const {
    if (plan_.wide && plan_.row.extent == 1 && left >= kWidestWidth) return kWidestWidth;
    return plan_.wide && left >= kWideWidth ? kWideWidth : panel_width<X>(left);
  }
  const MicroFn<X>* kernels() const {
    if (cols_ == kWidth) return kMicro<X>.two;
    if (cols_ == X::kLanes) return kMicro<X>.one;
    if (cols_ < X::kLanes) return kMicro<X>.partial;
    return cols_ == kWideWidth ? kWide<X>.of : kWide<X>.widest;
  }

  Range tile_rows(std::int64_t tile) const {
    const Range r = piece(rows_.end - rows_.begin, unit_, tile, tiles_);
    return {rows_.begin + r.begin, rows_.begin + r.end};
  }

  void pack_row_block() {
    const Side& row = plan_.row;
    const T* src = static_cast<const T*>(row.ptr[0]);
    for (std::int64_t tile = 0; tile < tiles_; ++tile) {
      const Range r = tile_rows(tile);
      const int rows = static_cast<int>(r.end - r.begin);
      pack_panel<X>(row_block_ + (r.begin - rows_.begin) * args_.k, rows, src + r.begin * row.x_stride,
                    row.k_stride, row.x_stride, args_.k, rows);
    }
  }

  /// Multiplies all rows of the block with the columns from x.
  void panel(std::int64_t x) {
    for (std::int64_t term = 0; term < plan_.terms; ++term) {
      const Finish<T> finish = finish_of<T>(args_, term == 0, term == plan_.terms - 1);
      std::int64_t k = 0;
      do {  // A product with k == 0 has one empty block.
        const std::int64_t length = at_most(plan_.block_k, args_.k - k);
        block(term, x, k, length, finish);
        k += length;
      } while (k < args_.k);
    }
  }

  void block(std::int64_t term, std::int64_t x, std::int64_t k, std::int64_t length,
             const Finish<T>& finish) {
    Tile<T> tile;
    const Side &vec = plan_.vec, &row = plan_.row;
    tile.vec = static_cast<const T*>(vec.ptr[term]) + k * vec.k_stride + x * vec.x_stride;
    tile.vec_k = vec.k_stride;
    tile.k = length;
    tile.cols = static_cast<int>(cols_);
    const Strip next = next_of(tile.vec, term, x, k + length);
    if (plan_.pack_vec) {
      if (!is_packed_) pack(vec_panels_[0], {tile.vec, length, tile.cols}, {0, length});
      tile.vec = vec_panels_[0];
      tile.vec_k = padded(tile.cols);
    }
    const MicroFn<X>* const table = kernels();
    for (std::int64_t q = 0; q < tiles_; ++q) {
      const Range r = tile_rows(q);
      if (plan_.pack_row) {
        tile.row_x = 1;
        tile.row_k = r.end - r.begin;
        tile.row = row_block_ + (r.begin - rows_.begin) * args_.k + k * tile.row_k;
      } else {
        tile.row = static_cast<const T*>(row.ptr[term]) + k * row.k_stride + r.begin * row.x_stride;
        tile.row_x = row.x_stride;
        tile.row_k = row.k_stride;
      }
      // Rows must still be in the cache when copied: each tile prefetches the rows that are copied after it.
      const Range part =
          plan_.pack_ahead ? piece(next.length, 1, q, tiles_) : Range{0, q == 0 ? next.length : 0};
      tile.next = part.begin < part.end ? next.begin + part.begin * vec.k_stride : nullptr;
      tile.next_k = vec.k_stride;
      tile.next_rows = at_most(part.end - part.begin, length);
      run_tile(tile, table[r.end - r.begin], r, x, k, finish);
      if (plan_.pack_ahead) pack(vec_panels_[1], next, part);
    }
    if (plan_.pack_ahead) {
      T* const used = vec_panels_[0];
      vec_panels_[0] = vec_panels_[1];
      vec_panels_[1] = used;
    }
    is_packed_ = plan_.pack_ahead && next.length > 0;
  }

  /// Vec operand of the block after this one, which begins at step `k` of panel x or of the next panel; of
  /// length 0 if it is adjacent or there is none.
  Strip next_of(const T* vec, std::int64_t term, std::int64_t x, std::int64_t k) const {
    const Side& side = plan_.vec;
    if (side.x_stride != 1) return {};
    if (k < args_.k) {
      return {vec + plan_.block_k * side.k_stride, at_most(plan_.block_k, args_.k - k),
              static_cast<int>(cols_)};
    }
    if (x + cols_ >= end_) return {};
    return {static_cast<const T*>(side.ptr[term]) + x + cols_, at_most(plan_.block_k, args_.k),
            static_cast<int>(width_of(end_ - x - cols_))};
  }

  static int padded(int cols) { return static_cast<int>(ceil_div(cols, X::kLanes)) * X::kLanes; }

  /// Packs some steps of a strip, to their place in a panel.
  void pack(T* panel, const Strip& strip, Range steps) const {
    const int width = padded(strip.cols);
    const Side& vec = plan_.vec;
    pack_panel<X>(panel + steps.begin * width, width, strip.begin + steps.begin * vec.k_stride, vec.k_stride,
                  vec.x_stride, steps.end - steps.begin, strip.cols);
  }

  /// Runs a tile, straight into C, or through memory for chains of several blocks and tiles to be transposed.
  void run_tile(Tile<T>& tile, MicroFn<X> kernel, Range r, std::int64_t x, std::int64_t k,
                const Finish<T>& finish) {
    T* c = static_cast<T*>(args_.c);
    if (!plan_.tile_bytes) {
      tile.c = c + r.begin * args_.c_row + x;
      tile.c_row = args_.c_row;
      kernel(tile, finish);
      return;
    }
    const bool whole = plan_.block_k == args_.k;
    Finish<T> next;
    tile.resume = k > 0 && args_.k <= kLongChain;
    if (k > 0 && !tile.resume) next.mode = Finish<T>::kAdd;
    tile.c = chains_ + (whole ? 0 : (r.begin - rows_.begin) * kWidth);
    tile.c_row = kWidth;
    kernel(tile, next);
    if (k + tile.k < args_.k) return;
    const int rows = static_cast<int>(r.end - r.begin);
    if (plan_.swapped) {
      finish_transposed(tile.c, kWidth, rows, tile.cols, c + x * args_.c_row + r.begin, args_.c_row, finish);
    } else {
      finish_straight(tile.c, kWidth, rows, tile.cols, c + r.begin * args_.c_row + x, args_.c_row, finish);
    }
  }

  const MatmulArgs& args_;
  const Plan& plan_;
  T* vec_panels_[2];  ///< Panels of this block and of the next.
  T *row_block_, *chains_;
  Range rows_ = {0, 0};
  std::int64_t unit_ = 1, tiles_ = 0, cols_ = 0, end_ = 0;
  bool is_packed_ = false;  ///< True if this block's panel was copied during the block before.
};

}  // namespace
}  // namespace popsr::kernels
