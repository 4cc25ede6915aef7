#include "popsr/ops/shape/view_kernels.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "popsr/ops/loops/strided.h"
#include "popsr/ops/loops/tiles.h"

namespace popsr {
namespace {

/// One part: its elements in the memory of both sides. Strides and offsets in bytes.
struct Move {
  Shape shape = {}, from = {}, to = {};
  std::ptrdiff_t from_offset = 0, to_offset = 0;
  std::size_t input = 0, output = 0;
};

/// Without axes of one position, neighbours merged where both sides allow it; at least one axis.
Move collapse(Move move, std::int64_t size) {
  Shape shape, from, to;
  for (std::size_t d = 0; d < move.shape.size(); ++d) {
    const std::int64_t extent = move.shape[d];
    if (extent == 1) continue;
    if (!shape.empty() && from.back() == extent * move.from[d] && to.back() == extent * move.to[d]) {
      shape.back() *= extent;
      from.back() = move.from[d];
      to.back() = move.to[d];
    } else {
      shape.push_back(extent);
      from.push_back(move.from[d]);
      to.push_back(move.to[d]);
    }
  }
  if (shape.empty()) {
    shape = {1};
    from = to = {size};
  }
  move.shape = std::move(shape);
  move.from = std::move(from);
  move.to = std::move(to);
  return move;
}

template <std::size_t kSize>
void move_row(std::byte* to, const std::byte* from, std::int64_t n, std::int64_t to_step,
              std::int64_t from_step) {
  for (std::int64_t i = 0; i < n; ++i) std::memcpy(to + i * to_step, from + i * from_step, kSize);
}

void move_elements(const Move& move, std::byte* to, const std::byte* from, std::size_t axis,
                   std::int64_t begin, std::int64_t end, std::int64_t size) {
  const std::int64_t to_step = move.to[axis], from_step = move.from[axis];
  to += begin * to_step;
  from += begin * from_step;
  if (axis + 1 < move.shape.size()) {
    for (std::int64_t i = 0; i < end - begin; ++i) {
      move_elements(move, to + i * to_step, from + i * from_step, axis + 1, 0, move.shape[axis + 1], size);
    }
    return;
  }
  if (to_step == size && from_step == size) {
    std::memcpy(to, from, static_cast<std::size_t>((end - begin) * size));
    return;
  }
  switch (size) {
    case 1:
      return move_row<1>(to, from, end - begin, to_step, from_step);
    case 2:
      return move_row<2>(to, from, end - begin, to_step, from_step);
    case 4:
      return move_row<4>(to, from, end - begin, to_step, from_step);
    default:
      return move_row<8>(to, from, end - begin, to_step, from_step);
  }
}

/// The part on both sides: `from` is the input, `to` the output.
Move move_of(const ViewPart& part, const Shape& input, const Shape& output, std::int64_t size) {
  Move move;
  if (part.same_order) {
    move.shape = {num_elements(output)};
    move.from = move.to = {size};
    return move;
  }
  const Shape strides = row_major_strides(input), to = row_major_strides(output);
  for (std::size_t d = 0; d < output.size(); ++d) {
    const std::size_t axis = part.axes[d];
    const Range& range = part.ranges[axis];
    move.shape.push_back(range.count);
    move.from.push_back(strides[axis] * range.step * size);
    move.to.push_back(to[d] * size);
    move.from_offset += strides[axis] * range.start * size;
    move.to_offset += to[d] * part.at[d] * size;
  }
  return move;
}

BlockKernel kernel_of(std::vector<Move> moves, std::int64_t size) {
  return [moves = std::move(moves), size](const BlockRun& run) {
    for (const Move& move : moves) {
      const std::int64_t rows = move.shape[0], elements = num_elements(move.shape);
      if (elements == 0) continue;
      parallel_for(
          run.pool, run.blocks * rows, 1, run.blocks * elements, [&](std::int64_t begin, std::int64_t end) {
            for (std::int64_t b = begin / rows; b * rows < end; ++b) {
              std::byte* const to = run.out[move.output] + b * run.out_stride[move.output] + move.to_offset;
              const std::byte* const from =
                  run.in[move.input] + b * run.in_stride[move.input] + move.from_offset;
              move_elements(move, to, from, 0, std::max<std::int64_t>(begin - b * rows, 0),
                            std::min(end - b * rows, rows), size);
            }
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
    Move move = move_of(parts[k], spec.inputs[k]->shape, spec.outputs[0].shape, size);
    move.input = k;
    moves.push_back(collapse(std::move(move), size));
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
    Move move = move_of(view.parts[k], spec.inputs[k]->shape, spec.outputs[0].shape, size);
    std::swap(move.from, move.to);
    std::swap(move.from_offset, move.to_offset);
    move.output = k;
    moves.push_back(collapse(std::move(move), size));
  }
  return kernel_of(std::move(moves), size);
}

}  // namespace popsr
