// Walker of ops on rows along one axis whose output has the shape and dtype of their inputs.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "popsr/exec/block_kernel.h"
#include "popsr/kernels/contract/kernel_table.h"
#include "popsr/ops/attributes.h"
#include "popsr/ops/loops/blocks.h"

namespace popsr {

inline constexpr std::size_t kMaxRowInputs = 2;

/// Function on one row of n contiguous elements of the compute type; out is not an input. `lo`, if not
/// null, receives the residuals of the results.
using RowFn = void (*)(const kernels::KernelTable& kernels, kernels::Compute compute, std::byte* out,
                       float* lo, const std::byte* const* in, std::int64_t n);

/// Function on adjacent rows of one input as they are stored; `room` is workspace for 4n numbers of the
/// compute type.
using StoredRowsFn = void (*)(void* out, float* lo, const void* in, std::int64_t rows, std::int64_t n,
                              void* room);

/// Applies a RowFn along one axis, attribute `axis`: tensors are [outer, n, inner].
class AxisRows {
 public:
  /// Makes the kernel; `residual` is true if the RowFn writes lo.
  AxisRows(const EvalSpec& spec, RowFn row, std::size_t inputs, bool residual = false,
           const Attr<std::int64_t>& axis = kAxis);
  /// Adds a StoredRowsFn with the results of the RowFn rounded to nearest; it is used if rows are
  /// contiguous and are not rounded stochastically. May be null.
  AxisRows& with_stored_rows(StoredRowsFn rows) {
    stored_rows_ = stochastic_ ? nullptr : rows;
    return *this;
  }
  void operator()(const BlockRun& run) const;

 private:
  std::size_t tile_bytes(std::int64_t columns) const {
    return static_cast<std::size_t>(n_ * columns * wide_size_);
  }
  void stored_rows(const Block& block, std::int64_t begin, std::int64_t end) const;
  void contiguous(const Block& block, std::int64_t row) const;
  void strided(const Block& block, std::int64_t outer, std::int64_t column) const;

  const kernels::KernelTable& kernels_;
  RowFn row_;
  StoredRowsFn stored_rows_ = nullptr;
  std::size_t num_inputs_;
  DType dtype_;
  kernels::Compute compute_;
  bool stochastic_;
  bool residual_;
  std::int64_t size_, wide_size_;
  std::int64_t outer_ = 1, n_ = 1, inner_ = 1;
};

}  // namespace popsr
