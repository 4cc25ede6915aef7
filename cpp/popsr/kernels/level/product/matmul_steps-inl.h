// Products that are accumulated one after another, and then summed over terms: the gradients of several micro
// batches on many replicas.
//
// A block of C that fits in a first-level cache takes all chains before the next block is begun, so that
// C is read and written once, whatever the number of chains.
#pragma once

#include "popsr/kernels/level/product/matmul_product-inl.h"

namespace popsr::kernels {
namespace {

/// Rows of a block: with 2 vectors a row it takes 12 KiB.
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
      load(static_cast<const T*>(args_.start[term]), to);
      for (std::int64_t step = term * args_.steps; step < (term + 1) * args_.steps; ++step) chain(step, to);
      if (term > 0) add();
    }
    store();
  }

  std::int64_t row_count() const { return rows_.end - rows_.begin; }
  std::int64_t col_count() const { return cols_.end - cols_.begin; }

  /// Lanes beyond the last column are zero: they are summed, and never stored.
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
