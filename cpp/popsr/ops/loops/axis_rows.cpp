#include "popsr/ops/loops/axis_rows.h"
#include "popsr/exec/block_kernel.h"
#include "popsr/ops/loops/blocks.h"

#include <algorithm>

#include "popsr/base/layout/loop_nest.h"
#include "popsr/base/layout/shape.h"
#include "popsr/ir/op_def.h"
#include "popsr/ops/loops/tiles.h"

namespace popsr {

namespace {

/// Columns that are gathered together when the axis is not the last.
constexpr std::int64_t kColumns = 16;

}  // namespace

AxisRows::AxisRows(const EvalSpec& spec, RowFn row, std::size_t inputs, bool residual,
                   const Attr<std::int64_t>& axis_attr)
    : kernels_(spec.kernels),
      row_(row),
      num_inputs_(inputs),
      dtype_(spec.outputs[0].dtype),
      compute_(compute_of(dtype_)),
      stochastic_(spec.stochastic && is_narrow_float(dtype_)),
      residual_(residual && is_narrow_float(dtype_)),
      size_(static_cast<std::int64_t>(size_of(dtype_))),
      wide_size_(static_cast<std::int64_t>(size_of(compute_))) {
  const Shape& shape = spec.outputs[0].shape;
  const auto axis = normalize_axis(spec.op.def->name, spec.op.get(axis_attr), shape.size());
  n_ = shape[static_cast<std::size_t>(axis)];
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (static_cast<std::int64_t>(d) < axis) outer_ *= shape[d];
    if (static_cast<std::int64_t>(d) > axis) inner_ *= shape[d];
  }
}

void AxisRows::stored_rows(const Block& block, std::int64_t begin, std::int64_t end) const {
  const std::int64_t at = begin * n_ * size_;
  stored_rows_(block.out() + at, nullptr, block.in(0) + at, end - begin, n_, thread_scratch(tile_bytes(4)));
}

void AxisRows::contiguous(const Block& block, std::int64_t row) const {
  const std::int64_t at = row * n_ * size_;
  std::array<const std::byte*, kMaxRowInputs> in = {};
  if (!is_narrow_float(dtype_)) {
    for (std::size_t j = 0; j < num_inputs_; ++j) in[j] = block.in(j) + at;
    return row_(kernels_, compute_, block.out() + at, nullptr, in.data(), n_);
  }
  const std::size_t bytes = tile_bytes(1);
  auto* const scratch = static_cast<std::byte*>(thread_scratch((num_inputs_ + 2) * bytes));
  auto* const lo = residual_ ? reinterpret_cast<float*>(scratch + (num_inputs_ + 1) * bytes) : nullptr;
  for (std::size_t j = 0; j < num_inputs_; ++j) {
    std::byte* const wide = scratch + (j + 1) * bytes;
    load_tile(kernels_, dtype_, compute_, wide, block.in(j) + at, n_);
    in[j] = wide;
  }
  row_(kernels_, compute_, scratch, lo, in.data(), n_);
  store_tile(kernels_, compute_, dtype_, block.out() + at, scratch, lo, n_, block.key(stochastic_),
             static_cast<std::uint64_t>(row * n_));
}

/// A few columns at a time: widened into a tile [n, columns], each column copied to a row and back.
void AxisRows::strided(const Block& block, std::int64_t outer, std::int64_t column) const {
  const std::int64_t columns = std::min(kColumns, inner_ - column);
  const std::size_t tile = tile_bytes(kColumns);
  const std::size_t row = tile_bytes(1);
  auto* const scratch = static_cast<std::byte*>(thread_scratch((num_inputs_ + 2) * (tile + row)));
  std::byte* const rows = scratch + (num_inputs_ + 2) * tile;
  const auto index = [&](std::int64_t i) { return (outer * n_ + i) * inner_ + column; };
  std::array<const std::byte*, kMaxRowInputs> in = {};
  for (std::size_t j = 0; j < num_inputs_; ++j) {
    for (std::int64_t i = 0; i < n_; ++i) {
      load_tile(kernels_, dtype_, compute_,
                scratch + j * tile + static_cast<std::size_t>(i * columns * wide_size_),
                block.in(j) + index(i) * size_, columns);
    }
    in[j] = rows + j * row;
  }
  std::byte* const result = scratch + num_inputs_ * tile;
  std::byte* const out_row = rows + num_inputs_ * row;
  std::byte* const rest = result + tile;
  auto* const lo_row = residual_ ? reinterpret_cast<float*>(out_row + row) : nullptr;
  for (std::int64_t c = 0; c < columns; ++c) {
    for (std::size_t j = 0; j < num_inputs_; ++j) {
      copy_elements(rows + j * row, wide_size_, scratch + j * tile + c * wide_size_, columns * wide_size_, n_,
                    wide_size_);
    }
    row_(kernels_, compute_, out_row, lo_row, in.data(), n_);
    copy_elements(result + c * wide_size_, columns * wide_size_, out_row, wide_size_, n_, wide_size_);
    if (!residual_) continue;
    copy_elements(rest + c * wide_size_, columns * wide_size_, out_row + row, wide_size_, n_, wide_size_);
  }
  for (std::int64_t i = 0; i < n_; ++i) {
    const std::int64_t at = i * columns * wide_size_;
    store_tile(kernels_, compute_, dtype_, block.out() + index(i) * size_, result + at,
               residual_ ? reinterpret_cast<const float*>(rest + at) : nullptr, columns,
               block.key(stochastic_), static_cast<std::uint64_t>(index(i)));
  }
}

void AxisRows::operator()(const BlockRun& run) const {
  const std::int64_t elements = outer_ * n_ * inner_;
  if (elements == 0) return;
  const std::int64_t groups = (inner_ + kColumns - 1) / kColumns;
  const std::int64_t units = outer_ * groups;
  for_each_range(run, {.units = units, .work = elements},
                 [&](const Block& block, std::int64_t begin, std::int64_t end) {
                   if (inner_ == 1 && stored_rows_ != nullptr) return stored_rows(block, begin, end);
                   for (std::int64_t unit = begin; unit < end; ++unit) {
                     const std::int64_t outer = unit / groups;
                     inner_ == 1 ? contiguous(block, outer) : strided(block, outer, unit % groups * kColumns);
                   }
                 });
}

}  // namespace popsr
