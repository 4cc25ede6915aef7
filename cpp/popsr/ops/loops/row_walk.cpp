#include "popsr/ops/loops/row_walk.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "popsr/base/layout/loop_nest.h"
#include "popsr/exec/block_kernel.h"
#include "popsr/ops/loops/blocks.h"
#include "popsr/ops/loops/tiles.h"
#include "popsr/ops/reduce/axes.h"

namespace popsr {

namespace {

using kernels::Compute;

/// Addresses of the rows of one operand.
struct RowLayout {
  DType dtype;
  Compute compute;
  std::int64_t size, wide_size;
  LoopNest starts{1};  ///< Offsets of the rows' first elements.
  /// Offsets of a row's elements from its first; empty if they are adjacent.
  std::vector<std::int64_t> offsets;
  std::int64_t n = 1;
  std::int64_t run = 1, step = 1;  ///< Number of elements of its innermost dimension, and their distance.

  /// `rank`: of an operand that kept all dimensions; others lack `axes`.
  RowLayout(const TensorType& type, const std::vector<std::int64_t>& axes, std::size_t rank)
      : dtype(type.dtype),
        compute(compute_of(type.dtype)),
        size(static_cast<std::int64_t>(size_of(type.dtype))),
        wide_size(static_cast<std::int64_t>(size_of(compute))) {
    Shape shape = type.shape;
    for (const std::int64_t axis : axes) {
      if (shape.size() < rank) shape.insert(shape.begin() + axis, 1);
    }
    const Shape strides = row_major_strides(shape);
    LoopNest row(1);
    for (std::size_t d = shape.size(); d-- > 0;) {
      const bool inside = std::ranges::binary_search(axes, static_cast<std::int64_t>(d));
      (inside ? row : starts).add_outer(shape[d], strides[d]);
    }
    n = row.count();
    run = row.extent(0);
    step = row.stride(0);
    if (row.contiguous(0, 1)) return;
    for (std::int64_t i = 0; i < n; ++i) offsets.push_back(row.offset(i));
  }
  std::int64_t at(std::int64_t i) const { return offsets.empty() ? i : offsets[static_cast<std::size_t>(i)]; }
  std::int64_t bytes() const { return whole_lines(n * wide_size); }
};

class RowWalk {
 public:
  RowWalk(const EvalSpec& spec, const std::vector<std::int64_t>& axes, RowBody body, std::int64_t room);
  void operator()(const BlockRun& run) const;

 private:
  class Rows;

  const std::byte* load(const RowLayout& row, const std::byte* tensor, std::int64_t index, std::byte* raw,
                        std::byte* wide) const;
  void store(const RowLayout& row, std::byte* tensor, std::int64_t index, std::byte* raw,
             const std::byte* wide, const kernels::NoiseKey* key) const;

  const kernels::KernelTable& kernels_;
  RowBody body_;
  bool stochastic_;
  std::vector<RowLayout> in_, out_;
  std::int64_t rows_, longest_ = 1, elements_ = 1, room_;
};

RowWalk::RowWalk(const EvalSpec& spec, const std::vector<std::int64_t>& axes, RowBody body, std::int64_t room)
    : kernels_(spec.kernels), body_(std::move(body)), stochastic_(spec.stochastic), room_(whole_lines(room)) {
  std::size_t rank = 0;
  for (const auto& type : spec.inputs) rank = std::max(rank, type->shape.size());
  for (const TensorType& type : spec.outputs) rank = std::max(rank, type.shape.size());
  for (const auto& type : spec.inputs) in_.emplace_back(*type, axes, rank);
  for (const TensorType& type : spec.outputs) out_.emplace_back(type, axes, rank);
  rows_ = in_[0].starts.count();
  for (const auto* side : {&in_, &out_}) {
    for (const RowLayout& row : *side) longest_ = std::max(longest_, row.n);
  }
  elements_ = rows_ * longest_;
}

/// The row: gathered into `raw`, widened into `wide`, or in place when it needs neither.
const std::byte* RowWalk::load(const RowLayout& row, const std::byte* tensor, std::int64_t index,
                               std::byte* raw, std::byte* wide) const {
  const std::byte* from = tensor + row.starts.offset(index) * row.size;
  if (!row.offsets.empty()) {
    for (std::int64_t i = 0; i < row.n; i += row.run) {
      copy_elements(raw + i * row.size, row.size, from + row.at(i) * row.size, row.step * row.size, row.run,
                    row.size);
    }
    from = raw;
  }
  if (!is_narrow_float(row.dtype)) return from;
  load_tile(kernels_, row.dtype, row.compute, wide, from, row.n);
  return wide;
}

void RowWalk::store(const RowLayout& row, std::byte* tensor, std::int64_t index, std::byte* raw,
                    const std::byte* wide, const kernels::NoiseKey* key) const {
  const std::int64_t first = row.starts.offset(index);
  std::byte* const to = tensor + first * row.size;
  if (row.offsets.empty()) {
    return store_tile(kernels_, row.compute, row.dtype, to, wide, nullptr, row.n, key,
                      static_cast<std::uint64_t>(first));
  }
  if (key == nullptr) store_tile(kernels_, row.compute, row.dtype, raw, wide, nullptr, row.n, nullptr, 0);
  for (std::int64_t i = 0; i < row.n; ++i) {
    std::byte* const element = to + row.at(i) * row.size;
    if (key == nullptr) {
      std::memcpy(element, raw + i * row.size, static_cast<std::size_t>(row.size));
    } else {
      store_tile(kernels_, row.compute, row.dtype, element, wide + i * row.wide_size, nullptr, 1, key,
                 static_cast<std::uint64_t>(first + row.at(i)));
    }
  }
}

/// The rows of one thread, with their workspace.
class RowWalk::Rows {
 public:
  explicit Rows(const RowWalk& walk) : walk_(walk) {
    std::int64_t bytes =
        walk.room_ + walk.longest_ * static_cast<std::int64_t>(sizeof(double) + sizeof(std::int32_t));
    for (const RowLayout& row : walk.in_) bytes += 2 * row.bytes();  // As stored, and widened.
    for (const RowLayout& row : walk.out_) bytes += row.bytes();
    auto* next = static_cast<std::byte*>(thread_scratch(static_cast<std::size_t>(bytes)));
    for (const RowLayout& row : walk.in_) wide_.push_back(std::exchange(next, next + 2 * row.bytes()));
    for (const RowLayout& row : walk.out_) out_.push_back(std::exchange(next, next + row.bytes()));
    in_.resize(wide_.size());
    room_ = std::exchange(next, next + walk.room_);
    raw_ = next;
    order_ =
        reinterpret_cast<std::int32_t*>(raw_ + walk.longest_ * static_cast<std::int64_t>(sizeof(double)));
  }

  void operator()(const Block& block, std::int64_t begin, std::int64_t end) {
    const RowArgs args{in_, out_, {order_, static_cast<std::size_t>(walk_.longest_)}, room_};
    for (std::int64_t index = begin; index < end; ++index) {
      for (std::size_t j = 0; j < in_.size(); ++j) {
        const RowLayout& row = walk_.in_[j];
        in_[j] = walk_.load(row, block.in(j), index, wide_[j] + row.bytes(), wide_[j]);
      }
      walk_.body_(args);
      for (std::size_t j = 0; j < out_.size(); ++j) {
        const RowLayout& row = walk_.out_[j];
        const bool noisy = walk_.stochastic_ && is_narrow_float(row.dtype);
        walk_.store(row, block.out(j), index, raw_, out_[j], block.key(noisy, j));
      }
    }
  }

 private:
  const RowWalk& walk_;
  std::vector<const std::byte*> in_;
  std::vector<std::byte*> wide_, out_;
  std::byte *room_, *raw_;
  std::int32_t* order_;
};

void RowWalk::operator()(const BlockRun& run) const {
  for_each_range_with(run, {.units = rows_, .grain = kRowGrain, .work = elements_},
                      [this] { return Rows(*this); });
}

}  // namespace

BlockKernel row_kernel(const EvalSpec& spec, std::vector<std::int64_t> axes, RowBody body,
                       std::int64_t room) {
  return RowWalk(spec, axes, std::move(body), room);
}

}  // namespace popsr
