#include "popsr/ops/shape/view_kernels.h"

#include <array>
#include <utility>

#include "popsr/base/layout/loop_nest.h"
#include "popsr/exec/block_kernel.h"
#include "popsr/ops/loops/blocks.h"
#include "popsr/ops/loops/strided.h"
#include "popsr/ops/loops/tiles.h"

namespace popsr {
namespace {

/// One part: its elements in the memory of both sides, in bytes.
struct Move {
  static constexpr std::size_t kFrom = 0, kTo = 1;  ///< Arrays of the nest.

  LoopNest nest;
  std::ptrdiff_t from_offset = 0, to_offset = 0;
  std::size_t input = 0, output = 0;
};

/// The elements of the part in the base, and in the tensor that the view makes of it.
struct PartStrides {
  Shape base = {}, view = {};
  std::ptrdiff_t base_offset = 0, view_offset = 0;
};
PartStrides strides_of(const ViewPart& part, const Shape& base, const Shape& output, std::int64_t size) {
  const Shape of_base = row_major_strides(base), of_view = row_major_strides(output);
  PartStrides strides;
  for (std::size_t d = 0; d < output.size(); ++d) {
    const std::size_t axis = part.axes[d];
    const Range& range = part.ranges[axis];
    strides.base.push_back(of_base[axis] * range.step * size);
    strides.view.push_back(of_view[d] * size);
    strides.base_offset += of_base[axis] * range.start * size;
    strides.view_offset += of_view[d] * part.at[d] * size;
  }
  return strides;
}

/// From the base to the view, or back.
Move move_of(const ViewPart& part, const Shape& base, const Shape& output, std::int64_t size, bool back) {
  if (part.same_order) {
    const std::array<Shape, 2> strides = {Shape{size}, Shape{size}};
    return {.nest = {{num_elements(output)}, strides}};
  }
  Shape shape;
  for (std::size_t d = 0; d < output.size(); ++d) shape.push_back(part.ranges[part.axes[d]].count);
  PartStrides of = strides_of(part, base, output, size);
  if (back) {
    std::swap(of.base, of.view);
    std::swap(of.base_offset, of.view_offset);
  }
  const std::array<Shape, 2> strides = {std::move(of.base), std::move(of.view)};
  return {.nest = {shape, strides}, .from_offset = of.base_offset, .to_offset = of.view_offset};
}

BlockKernel kernel_of(std::vector<Move> moves, std::int64_t size) {
  return [moves = std::move(moves), size](const BlockRun& run) {
    for (const Move& move : moves) {
      const std::int64_t elements = move.nest.count();
      if (elements == 0) continue;
      const std::int64_t rows = move.nest.extent(move.nest.rank() - 1), row = elements / rows;
      for_each_range(run, {.units = rows, .work = elements},
                     [&](const Block& block, std::int64_t begin, std::int64_t end) {
                       copy_range(move.nest, block.out(move.output) + move.to_offset, Move::kTo,
                                  block.in(move.input) + move.from_offset, Move::kFrom, size, begin * row,
                                  (end - begin) * row);
                     });
    }
  };
}

StridedView part_of_base(const ViewPart& part, const Shape& base, const Shape& output) {
  if (part.same_order) return {.shape = output, .strides = row_major_strides(output)};
  const Shape strides = row_major_strides(base);
  StridedView view{.shape = output, .strides = {}};
  for (const std::size_t axis : part.axes) {
    const Range& range = part.ranges[axis];
    view.strides.push_back(strides[axis] * range.step);
    view.offset += strides[axis] * range.start;
  }
  return view;
}

}  // namespace

BlockKernel join_kernel(const EvalSpec& spec, const std::vector<ViewPart>& parts) {
  const auto size = static_cast<std::int64_t>(size_of(spec.outputs[0].dtype));
  std::vector<Move> moves;
  for (std::size_t k = 0; k < parts.size(); ++k) {
    moves.push_back(move_of(parts[k], spec.inputs[k]->shape, spec.outputs[0].shape, size, false));
    moves.back().input = k;
  }
  return kernel_of(std::move(moves), size);
}

BlockKernel eval_view(const EvalSpec& spec) {
  const View& view = *view_of(spec.ir, spec.op.outputs[0]);
  // All of the output from one base: the kernel that knows how to go through caches.
  if (view.parts.size() == 1) {
    return gather_kernel(spec, part_of_base(view.parts[0], spec.inputs[0]->shape, spec.outputs[0].shape));
  }
  return join_kernel(spec, view.parts);
}

BlockKernel write_back_view(const EvalSpec& spec) {
  const View& view = *view_of(spec.ir, spec.op.outputs[0]);
  const auto size = static_cast<std::int64_t>(size_of(spec.outputs[0].dtype));
  std::vector<Move> moves;
  for (std::size_t k = 0; k < view.parts.size(); ++k) {
    moves.push_back(move_of(view.parts[k], spec.inputs[k]->shape, spec.outputs[0].shape, size, true));
    moves.back().output = k;
  }
  return kernel_of(std::move(moves), size);
}

}  // namespace popsr
