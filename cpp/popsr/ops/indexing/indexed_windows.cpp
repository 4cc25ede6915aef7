#include "popsr/ops/indexing/indexed_windows.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <utility>

#include "popsr/base/error.h"
#include "popsr/base/layout/loop_nest.h"
#include "popsr/ops/loops/blocks.h"
#include "popsr/ops/loops/tiles.h"

namespace popsr {
namespace {

using kernels::Compute;
using kernels::ElementwiseOp;

constexpr std::int64_t kOutside = -1;
constexpr std::size_t kOfTensor = 0, kOfWindows = 1, kOfFill = 2;  ///< Arrays of the nest of a window.

/// Positions of the windows: for each element of the batch an offset on either side, then a nest in a window.
class Placement {
 public:
  Placement(const EvalSpec& spec, const IndexedWindows& of)
      : kernels_(spec.kernels),
        op_(spec.op.def->name),
        dtype_(spec.inputs[1]->dtype),
        of_(of),
        tensor_strides_(row_major_strides(of.tensor)) {
    const Shape strides = row_major_strides(of.windows);
    batch_shape_.assign(of.indices.begin(), of.indices.end() - 1);
    for (std::size_t d = 0; d < of.windows.size(); ++d) {
      const bool offset = std::ranges::binary_search(of.dims.offset_dims, static_cast<std::int64_t>(d));
      (offset ? offset_strides_ : batch_strides_).push_back(strides[d]);
    }
    for (const std::size_t axis : of.dims.window_axes(of.tensor.size())) {
      sizes_.push_back(of.sizes[axis]);
      strides_.push_back(tensor_strides_[axis]);
    }
    batch_ = num_elements(batch_shape_);
    width_ = of.indices.back();
    each_ = num_elements(sizes_);
  }

  std::int64_t batch() const { return batch_; }
  std::int64_t each() const { return each_; }  ///< Elements of a window.

  /// The loops of a window; strides in elements of the given size, of the fill value 0.
  LoopNest nest(std::int64_t tensor_size, std::int64_t windows_size) const {
    std::array<Shape, 3> strides = {strides_, offset_strides_, Shape(sizes_.size(), 0)};
    for (std::int64_t& stride : strides[kOfTensor]) stride *= tensor_size;
    for (std::int64_t& stride : strides[kOfWindows]) stride *= windows_size;
    return {sizes_, strides};
  }

  /// Offsets of the windows in the tensor, kOutside where one is left out.
  std::vector<std::int64_t> load(const Block& block) const {
    std::vector<std::int64_t> corners(static_cast<std::size_t>(batch_ * width_));
    if (!corners.empty()) {
      load_tile(kernels_, dtype_, Compute::kI64, corners.data(), block.in(1), batch_ * width_);
    }
    std::vector<std::int64_t> offsets(static_cast<std::size_t>(batch_));
    for (std::int64_t g = 0; g < batch_; ++g) {
      offsets[static_cast<std::size_t>(g)] = offset_of(g, corners.data() + g * width_);
    }
    return offsets;
  }

  /// Offset of a window among the windows.
  std::int64_t at(std::int64_t g) const { return dot(g, batch_strides_); }

 private:
  std::int64_t offset_of(std::int64_t g, const std::int64_t* corner) const {
    std::int64_t offset = 0;
    bool inside = true;
    for (std::size_t k = 0; k < of_.dims.index_map.size(); ++k) {
      const auto axis = static_cast<std::size_t>(of_.dims.index_map[k]);
      const std::int64_t most = of_.tensor[axis] - of_.sizes[axis];
      // Unsigned numbers from 2^63 on come out negative.
      const bool huge = dtype_ == DType::kUInt64 && corner[k] < 0;
      const std::int64_t start = huge ? std::numeric_limits<std::int64_t>::max() : corner[k];
      inside = inside && start >= 0 && start <= most;
      if (of_.bounds == WindowBounds::kCheck && (start < 0 || start > most)) {
        raise<OutOfRangeError>("{}: index is out of range, got {} for axis {}, expected 0 <= index <= {}",
                               op_, start, axis, most);
      }
      offset += std::clamp<std::int64_t>(start, 0, most) * tensor_strides_[axis];
    }
    if (!inside && of_.bounds == WindowBounds::kFill) return kOutside;
    for (std::size_t k = 0; k < of_.dims.operand_batching_dims.size(); ++k) {
      const auto axis = static_cast<std::size_t>(of_.dims.operand_batching_dims[k]);
      offset +=
          coordinate(g, static_cast<std::size_t>(of_.dims.indices_batching_dims[k])) * tensor_strides_[axis];
    }
    return offset;
  }

  std::int64_t coordinate(std::int64_t g, std::size_t axis) const {
    for (std::size_t d = batch_shape_.size(); d-- > axis + 1;) g /= batch_shape_[d];
    return g % batch_shape_[axis];
  }
  std::int64_t dot(std::int64_t g, const Shape& strides) const {
    std::int64_t offset = 0;
    for (std::size_t d = batch_shape_.size(); d-- > 0; g /= batch_shape_[d]) {
      offset += g % batch_shape_[d] * strides[d];
    }
    return offset;
  }

  const kernels::KernelTable& kernels_;
  std::string_view op_;
  DType dtype_;
  IndexedWindows of_;
  Shape tensor_strides_, batch_shape_, batch_strides_ = {}, offset_strides_ = {};
  Shape sizes_ = {}, strides_ = {};  ///< Extents and strides of a window, on the axes that it spans.
  std::int64_t batch_ = 0, width_ = 0, each_ = 0;
};

using Offsets = std::vector<std::vector<std::int64_t>>;

/// Loads the offsets of all blocks first, so that an error comes before anything is written.
Offsets load_all(const Placement& placement, const BlockRun& run) {
  Offsets offsets;
  const std::int64_t blocks = run.in_stride[1] == 0 ? std::min<std::int64_t>(run.blocks, 1) : run.blocks;
  for (std::int64_t b = 0; b < blocks; ++b) offsets.push_back(placement.load(Block(run, b)));
  return offsets;
}
const std::vector<std::int64_t>& of_block(const Offsets& offsets, const Block& block) {
  return offsets[offsets.size() == 1 ? 0 : static_cast<std::size_t>(block.index())];
}

// Take

class TakeWindows {
 public:
  TakeWindows(const EvalSpec& spec, const IndexedWindows& of, double fill, bool last_only)
      : placement_(spec, of),
        size_(static_cast<std::int64_t>(size_of(spec.outputs[0].dtype))),
        nest_(placement_.nest(size_, size_)),
        elements_(num_elements(of.windows)),
        tensor_(num_elements(of.tensor)),
        last_only_(last_only) {
    store_tile(spec.kernels, Compute::kF64, spec.outputs[0].dtype, fill_.data(), &fill, nullptr, 1, nullptr,
               0);
  }

  void operator()(const BlockRun& run) const {
    const Offsets offsets = load_all(placement_, run);
    if (elements_ == 0) return;
    if (last_only_) {
      for_each_block(run, [&](const Block& block) { take_last(block, of_block(offsets, block)); });
      return;
    }
    for_each_range(run, {.units = placement_.batch(), .work = elements_},
                   [&](const Block& block, std::int64_t begin, std::int64_t end) {
                     const std::vector<std::int64_t>& at = of_block(offsets, block);
                     for (std::int64_t g = begin; g < end; ++g)
                       take(block, g, at[static_cast<std::size_t>(g)]);
                   });
  }

 private:
  void take(const Block& block, std::int64_t g, std::int64_t offset) const {
    std::byte* const to = block.out() + placement_.at(g) * size_;
    const bool outside = offset == kOutside;
    copy_range(nest_, to, kOfWindows, outside ? fill_.data() : block.in(0) + offset * size_,
               outside ? kOfFill : kOfTensor, size_, 0, placement_.each());
  }

  /// From the last window back: an element is taken once.
  void take_last(const Block& block, const std::vector<std::int64_t>& offsets) const {
    std::vector<std::uint8_t> taken(static_cast<std::size_t>(tensor_));
    std::memset(block.out(), 0, static_cast<std::size_t>(elements_ * size_));
    for (std::int64_t g = placement_.batch(); g-- > 0;) {
      const std::int64_t offset = offsets[static_cast<std::size_t>(g)];
      for (std::int64_t i = 0; offset != kOutside && i < placement_.each(); ++i) {
        const std::int64_t from = offset * size_ + nest_.offset(i, kOfTensor);
        const auto element = static_cast<std::size_t>(from / size_);
        if (std::exchange(taken[element], std::uint8_t{1}) != 0) continue;
        std::memcpy(block.out() + placement_.at(g) * size_ + nest_.offset(i, kOfWindows), block.in(0) + from,
                    static_cast<std::size_t>(size_));
      }
    }
  }

  Placement placement_;
  std::int64_t size_;
  LoopNest nest_;
  std::int64_t elements_, tensor_;
  bool last_only_;
  alignas(double) std::array<std::byte, sizeof(double)> fill_ = {};
};

// Scatter

ElementwiseOp kernel_of_windows(WindowReduction reduction) {
  switch (reduction) {
    case WindowReduction::kMul:
      return ElementwiseOp::kMul;
    case WindowReduction::kMin:
      return ElementwiseOp::kMinimum;
    case WindowReduction::kMax:
      return ElementwiseOp::kMaximum;
    default:
      return ElementwiseOp::kAdd;
  }
}

class ScatterWindows {
 public:
  ScatterWindows(const EvalSpec& spec, const IndexedWindows& of, WindowReduction reduction)
      : kernels_(spec.kernels),
        placement_(spec, of),
        dtype_(spec.outputs[0].dtype),
        compute_(compute_of(dtype_)),
        replaces_(reduction == WindowReduction::kLast),
        combine_(replaces_ ? nullptr : spec.kernels.elementwise(kernel_of_windows(reduction), compute_)),
        widens_(is_narrow_float(dtype_) && !replaces_),
        stochastic_(spec.stochastic && is_narrow_float(dtype_)),
        size_(static_cast<std::int64_t>(size_of(dtype_))),
        wide_size_(widens_ ? static_cast<std::int64_t>(size_of(compute_)) : size_),
        nest_(placement_.nest(wide_size_, wide_size_)),
        run_(nest_.stride(0, kOfTensor) == wide_size_ && nest_.stride(0, kOfWindows) == wide_size_
                 ? nest_.extent(0)
                 : 1),
        elements_(num_elements(of.tensor)),
        values_(num_elements(of.windows)) {}

  void operator()(const BlockRun& run) const {
    const Offsets offsets = load_all(placement_, run);
    if (elements_ == 0) return;
    share_blocks(run, elements_ + values_,
                 [&](const Block& block) { scatter(block, of_block(offsets, block)); });
  }

 private:
  void scatter(const Block& block, const std::vector<std::int64_t>& offsets) const {
    if (!widens_) {
      if (block.out() != block.in(0)) {
        std::memcpy(block.out(), block.in(0), static_cast<std::size_t>(elements_ * size_));
      }
      return reduce(block.out(), block.in(2), offsets);
    }
    std::vector<std::byte> acc(static_cast<std::size_t>(elements_ * wide_size_));
    std::vector<std::byte> values(static_cast<std::size_t>(values_ * wide_size_));
    load_tile(kernels_, dtype_, compute_, acc.data(), block.in(0), elements_);
    load_tile(kernels_, dtype_, compute_, values.data(), block.in(2), values_);
    reduce(acc.data(), values.data(), offsets);
    store_tile(kernels_, compute_, dtype_, block.out(), acc.data(), nullptr, elements_,
               block.key(stochastic_), 0);
  }

  void reduce(std::byte* acc, const std::byte* values, const std::vector<std::int64_t>& offsets) const {
    if (values_ == 0) return;
    for (std::int64_t g = 0; g < placement_.batch(); ++g) {
      const std::int64_t offset = offsets[static_cast<std::size_t>(g)];
      if (offset == kOutside) continue;
      std::byte* const to = acc + offset * wide_size_;
      const std::byte* const from = values + placement_.at(g) * wide_size_;
      if (replaces_) {
        copy_range(nest_, to, kOfTensor, from, kOfWindows, wide_size_, 0, placement_.each());
        continue;
      }
      for (std::int64_t i = 0; i < placement_.each(); i += run_) {
        std::byte* const element = to + nest_.offset(i, kOfTensor);
        const void* const in[] = {element, from + nest_.offset(i, kOfWindows)};
        combine_(element, nullptr, in, run_, nullptr);
      }
    }
  }

  const kernels::KernelTable& kernels_;
  Placement placement_;
  DType dtype_;
  Compute compute_;
  bool replaces_;
  kernels::ElementwiseFn combine_;
  bool widens_, stochastic_;
  std::int64_t size_, wide_size_;
  LoopNest nest_;
  std::int64_t run_;  ///< Elements of a window that lie together on both sides.
  std::int64_t elements_, values_;
};

}  // namespace

std::vector<std::size_t> WindowDims::window_axes(std::size_t rank) const {
  std::vector<std::size_t> axes;
  for (std::size_t d = 0; d < rank; ++d) {
    const auto axis = static_cast<std::int64_t>(d);
    const bool left_out = std::ranges::binary_search(collapsed_dims, axis) ||
                          std::ranges::find(operand_batching_dims, axis) != operand_batching_dims.end();
    if (!left_out) axes.push_back(d);
  }
  return axes;
}

BlockKernel take_windows(const EvalSpec& spec, const IndexedWindows& of, double fill, bool last_only) {
  return TakeWindows(spec, of, fill, last_only);
}

BlockKernel scatter_windows(const EvalSpec& spec, const IndexedWindows& of, WindowReduction reduction) {
  return ScatterWindows(spec, of, reduction);
}

}  // namespace popsr
