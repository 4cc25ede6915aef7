// softmax over one axis and its gradient: exp(x - max) / sum, the sum through the 16 lanes of
// kernels::ReduceFn.
#include <algorithm>
#include <array>
#include <cstring>

#include "popsr/ops/infer.h"
#include "popsr/ops/registry.h"
#include "popsr/ops/tiles.h"

namespace popsr {

namespace {

using kernels::Compute;
using kernels::Ew;
using kernels::KernelTable;

constexpr std::size_t kMaxInputs = 2;
/// Columns that are gathered together when the axis is not the last.
constexpr std::int64_t kColumns = 16;

/// One row of n contiguous elements of the compute type; out is no input.
using RowFn = void (*)(const KernelTable& kernels, Compute compute, std::byte* out,
                       const std::byte* const* in, std::int64_t n);

/// Applies a RowFn along one axis of inputs and output of one type: tensors are [outer, n, inner].
class AxisRows {
 public:
  AxisRows(const EvalSpec& spec, RowFn row, std::size_t inputs);
  void operator()(const BlockRun& run) const;

 private:
  /// Operands of one block.
  struct Block {
    std::array<const std::byte*, kMaxInputs> in;
    std::byte* out;
    const kernels::NoiseKey* key;
  };

  std::size_t tile_bytes(std::int64_t columns) const {
    return static_cast<std::size_t>(n_ * columns * wide_size_);
  }
  void contiguous(const Block& block, std::int64_t row) const;
  void strided(const Block& block, std::int64_t outer, std::int64_t column) const;

  const KernelTable& kernels_;
  RowFn row_;
  std::size_t num_inputs_;
  DType dtype_;
  Compute compute_;
  bool stochastic_;
  std::int64_t size_, wide_size_;
  std::int64_t outer_ = 1, n_ = 1, inner_ = 1;
};

AxisRows::AxisRows(const EvalSpec& spec, RowFn row, std::size_t inputs)
    : kernels_(spec.kernels),
      row_(row),
      num_inputs_(inputs),
      dtype_(spec.outputs[0].dtype),
      compute_(compute_of(dtype_)),
      stochastic_(spec.stochastic && is_narrow_float(dtype_)),
      size_(static_cast<std::int64_t>(size_of(dtype_))),
      wide_size_(static_cast<std::int64_t>(size_of(compute_))) {
  const Shape& shape = spec.outputs[0].shape;
  const auto axis = normalize_axis(spec.op.def->name, spec.op.attr<std::int64_t>("axis"), shape.size());
  n_ = shape[static_cast<std::size_t>(axis)];
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (static_cast<std::int64_t>(d) < axis) outer_ *= shape[d];
    if (static_cast<std::int64_t>(d) > axis) inner_ *= shape[d];
  }
}

void AxisRows::contiguous(const Block& block, std::int64_t row) const {
  const std::int64_t at = row * n_ * size_;
  std::array<const std::byte*, kMaxInputs> in = {};
  if (!is_narrow_float(dtype_)) {
    for (std::size_t j = 0; j < num_inputs_; ++j) in[j] = block.in[j] + at;
    return row_(kernels_, compute_, block.out + at, in.data(), n_);
  }
  const std::size_t bytes = tile_bytes(1);
  auto* const scratch = static_cast<std::byte*>(thread_scratch((num_inputs_ + 1) * bytes));
  for (std::size_t j = 0; j < num_inputs_; ++j) {
    std::byte* const wide = scratch + (j + 1) * bytes;
    load_tile(kernels_, dtype_, compute_, wide, block.in[j] + at, n_);
    in[j] = wide;
  }
  row_(kernels_, compute_, scratch, in.data(), n_);
  store_tile(kernels_, compute_, dtype_, block.out + at, scratch, nullptr, n_, block.key,
             static_cast<std::uint64_t>(row * n_));
}

/// Copies between element `column` of rows of `columns` elements and a contiguous row.
void move_column(std::byte* to, std::int64_t to_step, const std::byte* from, std::int64_t from_step,
                 std::int64_t n, std::int64_t size) {
  for (std::int64_t i = 0; i < n; ++i) {
    std::memcpy(to + i * to_step, from + i * from_step, static_cast<std::size_t>(size));
  }
}

/// A few columns at a time: widened into a tile [n, columns], each column copied to a row and back.
void AxisRows::strided(const Block& block, std::int64_t outer, std::int64_t column) const {
  const std::int64_t columns = std::min(kColumns, inner_ - column);
  const std::size_t tile = tile_bytes(kColumns);
  const std::size_t row = tile_bytes(1);
  auto* const scratch = static_cast<std::byte*>(thread_scratch((num_inputs_ + 1) * (tile + row)));
  std::byte* const rows = scratch + (num_inputs_ + 1) * tile;
  const auto index = [&](std::int64_t i) { return (outer * n_ + i) * inner_ + column; };
  std::array<const std::byte*, kMaxInputs> in = {};
  for (std::size_t j = 0; j < num_inputs_; ++j) {
    for (std::int64_t i = 0; i < n_; ++i) {
      load_tile(kernels_, dtype_, compute_,
                scratch + j * tile + static_cast<std::size_t>(i * columns * wide_size_),
                block.in[j] + index(i) * size_, columns);
    }
    in[j] = rows + j * row;
  }
  std::byte* const result = scratch + num_inputs_ * tile;
  std::byte* const out_row = rows + num_inputs_ * row;
  for (std::int64_t c = 0; c < columns; ++c) {
    for (std::size_t j = 0; j < num_inputs_; ++j) {
      move_column(rows + j * row, wide_size_, scratch + j * tile + c * wide_size_, columns * wide_size_, n_,
                  wide_size_);
    }
    row_(kernels_, compute_, out_row, in.data(), n_);
    move_column(result + c * wide_size_, columns * wide_size_, out_row, wide_size_, n_, wide_size_);
  }
  for (std::int64_t i = 0; i < n_; ++i) {
    store_tile(kernels_, compute_, dtype_, block.out + index(i) * size_, result + i * columns * wide_size_,
               nullptr, columns, block.key, static_cast<std::uint64_t>(index(i)));
  }
}

void AxisRows::operator()(const BlockRun& run) const {
  const std::int64_t elements = outer_ * n_ * inner_;
  if (elements == 0) return;
  const std::int64_t groups = (inner_ + kColumns - 1) / kColumns;
  const std::int64_t units = outer_ * groups;
  parallel_for(
      run.pool, run.blocks * units, 1, run.blocks * elements, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t unit = begin; unit < end; ++unit) {
          const std::int64_t b = unit / units;
          Block block{
              .in = {}, .out = run.out[0] + b * run.out_stride[0], .key = noise_key(run, stochastic_, 0, b)};
          for (std::size_t j = 0; j < num_inputs_; ++j) block.in[j] = run.in[j] + b * run.in_stride[j];
          const std::int64_t outer = unit % units / groups;
          inner_ == 1 ? contiguous(block, outer) : strided(block, outer, unit % groups * kColumns);
        }
      });
}

void softmax_row(const KernelTable& kernels, Compute compute, std::byte* out, const std::byte* const* in,
                 std::int64_t n) {
  (compute == Compute::kF64 ? kernels.softmax_f64 : kernels.softmax_f32)(out, in[0], n);
}

/// y * (dy - sum(y * dy))
void softmax_grad_row(const KernelTable& kernels, Compute compute, std::byte* out, const std::byte* const* in,
                      std::int64_t n) {
  const auto type = static_cast<std::size_t>(compute);
  const auto size = static_cast<std::int64_t>(size_of(compute));
  const auto apply = [&](Ew ew, std::byte* to, const void* a, const void* b, std::int64_t count) {
    const std::array<const void*, 2> operands = {a, b};
    kernels.elementwise[static_cast<std::size_t>(ew)][type](to, nullptr, operands.data(), count, nullptr);
  };
  apply(Ew::kMul, out, in[0], in[1], n);
  alignas(64) std::array<std::byte, kTile * sizeof(double)> sums;
  kernels.reduce[static_cast<std::size_t>(kernels::Reduce::kSum)][type](sums.data(), nullptr, out, 1, n, n);
  const std::int64_t filled = std::min(kTile, n);
  for (std::int64_t i = 1; i < filled; ++i) {
    std::memcpy(sums.data() + i * size, sums.data(), static_cast<std::size_t>(size));
  }
  for (std::int64_t i = 0; i < n; i += kTile) {
    apply(Ew::kSub, out + i * size, in[1] + i * size, sums.data(), std::min(kTile, n - i));
  }
  apply(Ew::kMul, out, in[0], out, n);
}

std::vector<OutputDef> infer_softmax(const InferContext& context) {
  normalize_axis(context.name(), context.op.attr<std::int64_t>("axis"), context.type(0).shape.size());
  return {{context.type(0), {}}};
}

BlockKernel eval_softmax(const EvalSpec& spec) { return AxisRows(spec, softmax_row, 1); }
BlockKernel eval_softmax_grad(const EvalSpec& spec) { return AxisRows(spec, softmax_grad_row, 2); }

void softmax_grad(GradContext& g) {
  if (!differentiates(g, 0)) return;
  const auto axis = g.op().attr<std::int64_t>("axis");
  g.set(0, g.emit("softmax_grad", {g.out(0), g.cotangent(0)}, {{"axis", axis}}));
}

}  // namespace

std::vector<OpDef> softmax_ops() {
  return {
      {.name = "softmax",
       .inputs = {{"t", kFloating}},
       .attrs = {required("axis", AttrType::kInt)},
       .infer = infer_softmax,
       .eval = eval_softmax,
       .grad = softmax_grad,
       .rounding = Rounding::kOnce},
      {.name = "softmax_grad",
       .inputs = {{"y", kFloating}, {"dy", kFloating}},
       .attrs = {required("axis", AttrType::kInt)},
       .infer = infer_softmax,
       .eval = eval_softmax_grad,
       .rounding = Rounding::kOnce,
       .internal = true},
  };
}

}  // namespace popsr
