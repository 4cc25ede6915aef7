// Products that are accumulated one after another, and then summed over terms: the gradients of several
// micro batches on many replicas.
//
// A block of C takes all chains before the next block is begun, so that C is read and written once, whatever
// the number of chains: a tile in registers while chains are short, a block in a first-level cache if they
// are long.
#pragma once

#include "popsr/kernels/level/product/matmul_product-inl.h"
#include "popsr/kernels/level/product/matmul_reduced-inl.h"

namespace popsr::kernels {
namespace {

template <class T>
struct SteppedTile {
  const T* row;  ///< Row operand, packed as [chain][k][Rows].
  const T* vec;  ///< Vec operand, packed as [chain][k][Vecs * lanes], zero beyond the last column.
  const void* const* start;            ///< Start of each term; null: no term reads it.
  const AccumulationFactors* factors;  ///< Factors of each chain.
  std::int64_t k, terms, steps;
  std::int64_t at;  ///< Offset of the tile in C and in each start.
  T* c;
  std::int64_t c_row;
  T* sum;  ///< Scratch of a tile: the sum of the terms so far.
  int cols;
};

/// Adds the chain `acc` to the term `total`, which the first step may overwrite.
template <class X, int Rows, int Vecs>
POPSR_INLINE void take_step(typename X::V (&total)[Rows][Vecs], const typename X::V (&acc)[Rows][Vecs],
                            const AccumulationFactors& factors) {
  using T = typename X::T;
  const auto alpha = X::splat(static_cast<T>(factors.alpha)), beta = X::splat(static_cast<T>(factors.beta));
  const bool adds = factors.alpha == 1.0 && factors.beta == 1.0;
#pragma GCC unroll 16
  for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 2
    for (int q = 0; q < Vecs; ++q) {
      if (factors.overwrites) {
        total[r][q] = acc[r][q];
      } else if (adds) {
        total[r][q] = total[r][q] + acc[r][q];
      } else {
        total[r][q] = alpha * total[r][q] + beta * acc[r][q];
      }
    }
}

template <class X, int Rows, int Vecs, bool Partial>
void micro_stepped(const SteppedTile<typename X::T>& tile, const Finish<typename X::T>& finish) {
  using T = typename X::T;
  using V = typename X::V;
  constexpr int kWidth = Vecs * X::kLanes;
  const T* row = tile.row;
  const T* vec = tile.vec;
  const AccumulationFactors* factors = tile.factors;
  V total[Rows][Vecs] = {};
  for (std::int64_t term = 0; term < tile.terms; ++term) {
    if (!factors->overwrites) {
      const T* const start = static_cast<const T*>(tile.start[term]) + tile.at;
      resume_tile<X, Rows, Vecs, Partial>(total, start, tile.c_row, tile.cols);
    }
    for (std::int64_t step = 0; step < tile.steps; ++step) {
      V acc[Rows][Vecs] = {};
      for (std::int64_t k = tile.k; k > 0; --k) {
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
        vec += kWidth;
      }
      take_step<X, Rows, Vecs>(total, acc, *factors++);
    }
    if (term > 0) {
#pragma GCC unroll 16
      for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 2
        for (int q = 0; q < Vecs; ++q)
          total[r][q] = X::load(tile.sum + r * kWidth + q * X::kLanes) + total[r][q];
    }
    if (term + 1 < tile.terms) store_tile<X, Rows, Vecs, false>(total, tile.sum, kWidth, kWidth);
  }
  finish_tile<X, Rows, Vecs, Partial>(total, tile.c, tile.c_row, tile.cols, finish);
}

template <class X>
using SteppedFn = void (*)(const SteppedTile<typename X::T>&, const Finish<typename X::T>&);

template <class X>
struct SteppedTable {
  SteppedFn<X> two[X::kReducedRows + 1] = {}, one[X::kReducedRows + 1] = {},
                                     partial[X::kReducedRows + 1] = {};
};

template <class X, int Rows>
constexpr void fill(SteppedTable<X>& table) {
  if constexpr (Rows > 0) {
    table.two[Rows] = micro_stepped<X, Rows, 2, false>;
    table.one[Rows] = micro_stepped<X, Rows, 1, false>;
    table.partial[Rows] = micro_stepped<X, Rows, 1, true>;
    fill<X, Rows - 1>(table);
  }
}

template <class X>
constexpr SteppedTable<X> make_stepped_table() {
  SteppedTable<X> table;
  fill<X, X::kReducedRows>(table);
  return table;
}
template <class X>
constexpr SteppedTable<X> kStepped = make_stepped_table<X>();

/// Short chains: all of them are packed at once, so that a tile of C is finished before the next is begun.
/// (A start may be C, which must not be written before all terms have read it.)
template <class X>
class ShortSteps {
  using T = typename X::T;
  using Chains = PackedChains<X>;

 public:
  ShortSteps(const MatmulArgs& args, const Plan& plan, void* scratch)
      : args_(args), chains_(plan, args.k, scratch) {
    chains_.take({0, plan.terms});
    finish_.divide = args.divisor != 1.0;
    finish_.divisor = static_cast<T>(args.divisor);
  }

  void run(Range rows, Range cols) {
    chains_.for_each_panel(rows, cols,
                           [this](Range block, std::int64_t x, int width) { panel(block, x, width); });
  }

 private:
  void panel(Range block, std::int64_t x, int cols) {
    alignas(64) T sum[X::kReducedRows * 2 * X::kLanes];
    SteppedTile<T> tile;
    tile.vec = chains_.panel();
    tile.start = args_.start;
    tile.factors = args_.factors;
    tile.k = args_.k;
    tile.terms = args_.terms;
    tile.steps = args_.steps;
    tile.c_row = args_.c_row;
    tile.sum = sum;
    tile.cols = cols;
    const auto& kernels = kStepped<X>;
    const SteppedFn<X>* table = cols == 2 * X::kLanes ? kernels.two
                                : cols == X::kLanes   ? kernels.one
                                                      : kernels.partial;
    for (std::int64_t q = 0; q < Chains::tiles_of(block); ++q) {
      const Range r = Chains::tile(block, q);
      tile.row = chains_.rows(r.begin);
      tile.at = (block.begin + r.begin) * args_.c_row + x;
      tile.c = static_cast<T*>(args_.c) + tile.at;
      table[r.end - r.begin](tile, finish_);
    }
  }

  const MatmulArgs& args_;
  Chains chains_;
  Finish<T> finish_ = {};
};

/// Number of rows of a block: with 2 vectors a row it takes 12 KiB.
template <class X>
constexpr std::int64_t kStepRows = 96 / X::kRows* X::kRows * 4 / static_cast<int>(sizeof(typename X::T));

template <class X>
MatmulArgs block_args(const MatmulArgs& args) {
  MatmulArgs block = args;
  block.epilogue = MatmulArgs::Epilogue::kScaledAdd;
  block.terms = 1;
  block.m = at_most(args.m, kStepRows<X>);
  block.n = at_most(args.n, 2 * X::kLanes);
  block.c_row = 2 * X::kLanes;
  return block;
}

template <class X>
constexpr std::int64_t kStepBytes = aligned_bytes(kStepRows<X> * 2 * X::kLanes *
                                                  static_cast<std::int64_t>(sizeof(typename X::T)));

template <class X>
std::int64_t steps_scratch(const MatmulArgs& args) {
  return 2 * kStepBytes<X> + make_plan<X>(block_args<X>(args)).bytes();
}

template <class X>
class SteppedProduct {
  using T = typename X::T;
  static constexpr std::int64_t kWidth = 2 * X::kLanes;

 public:
  SteppedProduct(const MatmulArgs& args, void* scratch)
      : args_(args),
        block_(block_args<X>(args)),
        plan_(make_plan<X>(block_)),
        sum_(static_cast<T*>(scratch)),
        next_(sum_ + kStepBytes<X> / static_cast<std::int64_t>(sizeof(T))),
        scratch_(next_ + kStepBytes<X> / static_cast<std::int64_t>(sizeof(T))) {
    block_.a = &a_;
    block_.b = &b_;
    (plan_.swapped ? plan_.vec : plan_.row).ptr = &a_;
    (plan_.swapped ? plan_.row : plan_.vec).ptr = &b_;
  }

  void run(Range rows, Range cols) {
    for (std::int64_t r = rows.begin; r < rows.end; r += kStepRows<X>) {
      rows_ = {r, at_most(rows.end, r + kStepRows<X>)};
      for (std::int64_t x = cols.begin; x < cols.end; x += kWidth) {
        cols_ = {x, at_most(cols.end, x + kWidth)};
        block();
      }
    }
  }

 private:
  void block() {
    for (std::int64_t term = 0; term < args_.terms; ++term) {
      T* const to = term == 0 ? sum_ : next_;
      if (!args_.factors[term * args_.steps].overwrites) load(static_cast<const T*>(args_.start[term]), to);
      for (std::int64_t step = term * args_.steps; step < (term + 1) * args_.steps; ++step) chain(step, to);
      if (term > 0) add();
    }
    store();
  }

  std::int64_t row_count() const { return rows_.end - rows_.begin; }
  std::int64_t col_count() const { return cols_.end - cols_.begin; }

  /// Loads a tile; lanes beyond the last column are zero: they are summed, and never stored.
  void load(const T* start, T* to) const {
    for (std::int64_t r = 0; r < row_count(); ++r) {
      const T* from = start + (rows_.begin + r) * args_.c_row + cols_.begin;
      for (std::int64_t x = 0; x < kWidth; ++x) to[r * kWidth + x] = x < col_count() ? from[x] : T{0};
    }
  }

  void chain(std::int64_t step, T* to) {
    a_ = static_cast<const T*>(args_.a[step]) + rows_.begin * args_.a_row;
    b_ = static_cast<const T*>(args_.b[step]) + cols_.begin * args_.b_col;
    block_.c = to;
    const AccumulationFactors& factors = args_.factors[step];
    block_.epilogue = factors.overwrites ? MatmulArgs::Epilogue::kStore : MatmulArgs::Epilogue::kScaledAdd;
    block_.alpha = factors.alpha;
    block_.beta = factors.beta;
    const Range rows = {0, row_count()}, cols = {0, col_count()};
    Product<X>(block_, plan_, scratch_).run(plan_.swapped ? cols : rows, plan_.swapped ? rows : cols);
  }

  void add() const {
    for (std::int64_t i = 0; i < row_count() * kWidth; i += X::kLanes)
      X::store(sum_ + i, X::load(sum_ + i) + X::load(next_ + i));
  }

  void store() const {
    const T divisor = static_cast<T>(args_.divisor);
    const bool divides = args_.divisor != 1.0;
    for (std::int64_t r = 0; r < row_count(); ++r) {
      const T* from = sum_ + r * kWidth;
      T* to = static_cast<T*>(args_.c) + (rows_.begin + r) * args_.c_row + cols_.begin;
      for (std::int64_t x = 0; x < col_count(); ++x) to[x] = divides ? from[x] / divisor : from[x];
    }
  }

  const MatmulArgs& args_;
  MatmulArgs block_;
  Plan plan_;
  T *sum_, *next_, *scratch_;
  const void *a_ = nullptr, *b_ = nullptr;
  Range rows_ = {0, 0}, cols_ = {0, 0};
};

}  // namespace
}  // namespace popsr::kernels
