// Ops that move elements: transpose, reshape, flatten, squeeze, slice, expand, detach, and the forms that
// make views. All keep bits; results but detach's are not shards (their meta shape is empty).
#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <optional>

#include "popsr/base/error.h"
#include "popsr/exec/block_kernel.h"
#include "popsr/ops/attributes.h"
#include "popsr/ops/infer.h"
#include "popsr/ops/loops/blocks.h"
#include "popsr/ops/loops/strided.h"
#include "popsr/ops/loops/tiles.h"
#include "popsr/ops/registry.h"
#include "popsr/ops/shape/view_kernels.h"

namespace popsr {

namespace {

using Ints = std::vector<std::int64_t>;

constexpr Attr<Ints> kPermutation{"permutation"};
constexpr Attr<Ints> kAxes{"axes"};
constexpr Attr<Ints> kStart{"start"};
constexpr Attr<Ints> kStop{"stop"};
constexpr Attr<Ints> kStep{"step"};
constexpr Attr<Ints> kSliceAxes{"axis"};

std::vector<OutputDef> reshaped(const InferContext& context, Shape shape) {
  return {{{context.type(0).dtype, std::move(shape)}, {}}};
}

/// The kernel of an op that makes a tensor of a view of its input.
template <StridedFn view>
KernelAspect of_view() {
  return {.eval = [](const EvalSpec& spec) { return gather_kernel(spec, view(spec)); }, .strided = view};
}

BlockKernel eval_copy(const EvalSpec& spec) { return copy_kernel(spec); }

std::vector<ViewPart> same_order(const Ir&, const Op&) { return {{.same_order = true}}; }

GradValue reshape_grad(Grad& g) { return g.reshape(g.dy(), g.in_type(0).shape); }

// Transpose

/// The permutation with negative values counted from the end; without one, all dimensions reversed.
Ints permutation_of(const Op& op, std::size_t rank) {
  const std::string_view name = op.def->name;
  auto permutation = op.find(kPermutation);
  if (!permutation) {
    permutation.emplace(rank);
    std::iota(permutation->rbegin(), permutation->rend(), 0);
    return *permutation;
  }
  if (permutation->size() != rank) {
    raise<AttributeValueError>("{}: permutation has the wrong length, got {}, expected {} axes", name,
                               to_string(*permutation), rank);
  }
  normalize_axes(name, *permutation, rank);  // Checks range and duplicates.
  for (std::int64_t& axis : *permutation) axis = normalize_axis(name, axis, rank);
  return *permutation;
}

std::vector<OutputDef> infer_transpose(const InferContext& context) {
  const Shape& from = context.type(0).shape;
  Shape to;
  for (const std::int64_t axis : permutation_of(context.op, from.size())) {
    to.push_back(from[static_cast<std::size_t>(axis)]);
  }
  return reshaped(context, std::move(to));
}

StridedView transpose_view(const EvalSpec& spec) {
  const Shape& from = spec.inputs[0]->shape;
  const Shape strides = row_major_strides(from);
  StridedView view{.shape = spec.outputs[0].shape, .strides = {}};
  for (const std::int64_t axis : permutation_of(spec.op, from.size())) {
    view.strides.push_back(strides[static_cast<std::size_t>(axis)]);
  }
  return view;
}

std::vector<ViewPart> transpose_part(const Ir& ir, const Op& op) {
  const Shape& from = ir.tensor(op.inputs[0]).type.shape;
  ViewPart part;
  for (const std::int64_t extent : from) part.ranges.push_back({0, 1, extent});
  for (const std::int64_t axis : permutation_of(op, from.size())) {
    part.axes.push_back(static_cast<std::size_t>(axis));
  }
  part.at.assign(from.size(), 0);
  return {std::move(part)};
}

GradValue transpose_grad(Grad& g) {
  const Ints permutation = permutation_of(g.op(), g.in_type(0).shape.size());
  Ints inverse(permutation.size());
  for (std::size_t d = 0; d < permutation.size(); ++d) {
    inverse[static_cast<std::size_t>(permutation[d])] = static_cast<std::int64_t>(d);
  }
  return g.call("transpose", {g.dy()}, {kPermutation(inverse)});
}

// Reshape, flatten, squeeze

/// The product of the extents other than -1; AttributeValueError for extents that mean nothing. 0 is an
/// extent of tensors without elements only.
std::int64_t known_elements(const InferContext& context, const Shape& shape) {
  const bool empty = num_elements(context.type(0).shape) == 0;
  std::int64_t known = 1;
  for (const std::int64_t extent : shape) {
    if (extent < -1 || (extent == 0 && !empty)) {
      raise<AttributeValueError>(
          "{}: shape holds an extent that is not positive, got {}, expected extents > 0 or -1",
          context.name(), to_string(shape));
    }
    if (extent != -1) known *= extent;
  }
  return known;
}

std::vector<OutputDef> infer_reshape(const InferContext& context) {
  Shape shape = context.get(kShape);
  const std::int64_t known = known_elements(context, shape);
  const std::int64_t elements = num_elements(context.type(0).shape);
  const auto inferred = std::ranges::find(shape, -1);
  if (std::ranges::count(shape, -1) > 1) {
    raise<AttributeValueError>("{}: more than one extent is to be inferred, got {}, expected at most one -1",
                               context.name(), to_string(shape));
  }
  const bool fits = inferred == shape.end() ? known == elements : known != 0 && elements % known == 0;
  if (!fits) {
    raise<ShapeError>("{}: numbers of elements differ, got {} to {}, expected {} elements", context.name(),
                      describe(context, 0), to_string(shape), elements);
  }
  if (inferred != shape.end()) *inferred = elements / known;
  return reshaped(context, std::move(shape));
}

std::vector<OutputDef> infer_flatten(const InferContext& context) {
  return reshaped(context, {num_elements(context.type(0).shape)});
}

std::vector<OutputDef> infer_squeeze(const InferContext& context) {
  const Shape& from = context.type(0).shape;
  const auto given = context.find(kAxes);
  const Ints axes = normalize_axes(context.name(), given.value_or(Ints{}), from.size());
  Shape to;
  for (std::size_t d = 0; d < from.size(); ++d) {
    const bool named = std::ranges::binary_search(axes, static_cast<std::int64_t>(d));
    if (named && from[d] != 1) {
      raise<ShapeError>("{}: axis {} cannot be removed, got {}, expected extent 1", context.name(), d,
                        describe(context, 0));
    }
    if (given ? !named : from[d] != 1) to.push_back(from[d]);
  }
  return reshaped(context, std::move(to));
}

// Slice

/// NumPy's rules for one dimension: negative bounds count from the end, then they are clamped.
Range resolve_range(std::string_view op, std::int64_t start, std::int64_t stop, std::int64_t step,
                    std::int64_t extent) {
  const std::int64_t low = step > 0 ? 0 : -1;
  const auto clamp = [&](std::int64_t bound) {
    return std::clamp(bound < 0 ? bound + extent : bound, low, low + extent);
  };
  const std::int64_t first = clamp(start), last = clamp(stop), down = step > 0 ? 1 : -1;
  const std::int64_t positions = (last - first) * down;
  if (positions < 0) {
    raise<ShapeError>("{}: range is inverted, got {} to {} of extent {}, expected start {} stop", op, start,
                      stop, extent, step > 0 ? "<=" : ">=");
  }
  if (step >= positions || step <= -positions) return {first, down, std::min<std::int64_t>(positions, 1)};
  const std::int64_t size = step * down;
  return {.start = first, .step = step, .count = (positions + size - 1) / size};
}

/// The attribute lists of a slice, all of one length.
struct SliceLists {
  Ints start, stop, step, axis;
};

SliceLists slice_lists(const Op& op) {
  const std::string_view name = op.def->name;
  const std::array lists = {op.find(kStart), op.find(kStop), op.find(kStep), op.find(kSliceAxes)};
  const auto given = std::ranges::find_if(lists, [](const auto& list) { return list.has_value(); });
  const std::size_t size = given == lists.end() ? 0 : (*given)->size();
  for (const auto& list : lists) {
    if (!list || list->size() == size) continue;
    raise<AttributeValueError>(
        "{}: start, stop, step and axis differ in length, got {} and {}, expected equal lengths", name, size,
        list->size());
  }
  SliceLists result{.start = {}, .stop = {}, .step = lists[2].value_or(Ints(size, 1)), .axis = {}};
  constexpr std::int64_t kFirst = std::numeric_limits<std::int64_t>::min();
  constexpr std::int64_t kLast = std::numeric_limits<std::int64_t>::max();
  for (std::size_t i = 0; i < size; ++i) {
    const std::int64_t step = result.step[i];
    if (step == 0) raise<AttributeValueError>("{}: step must not be 0, got 0, expected another int", name);
    result.start.push_back(lists[0] ? (*lists[0])[i] : step > 0 ? kFirst : kLast);
    result.stop.push_back(lists[1] ? (*lists[1])[i] : step > 0 ? kLast : kFirst);
    result.axis.push_back(lists[3] ? (*lists[3])[i] : static_cast<std::int64_t>(i));
  }
  return result;
}

std::vector<Range> slice_ranges(const Op& op, const Shape& shape) {
  const SliceLists lists = slice_lists(op);
  normalize_axes(op.def->name, lists.axis, shape.size());  // Checks range and duplicates.
  std::vector<Range> ranges;
  for (const std::int64_t extent : shape) ranges.push_back({0, 1, extent});
  for (std::size_t i = 0; i < lists.axis.size(); ++i) {
    const auto d = static_cast<std::size_t>(normalize_axis(op.def->name, lists.axis[i], shape.size()));
    ranges[d] = resolve_range(op.def->name, lists.start[i], lists.stop[i], lists.step[i], shape[d]);
  }
  return ranges;
}

/// The slice of a tensor of that shape.
StridedView slice_view(const Op& op, const Shape& shape) {
  const Shape strides = row_major_strides(shape);
  StridedView view;
  const std::vector<Range> ranges = slice_ranges(op, shape);
  for (std::size_t d = 0; d < shape.size(); ++d) {
    view.shape.push_back(ranges[d].count);
    view.strides.push_back(strides[d] * ranges[d].step);
    view.offset += strides[d] * ranges[d].start;
  }
  return view;
}

std::vector<ViewPart> slice_part(const Ir& ir, const Op& op) {
  ViewPart part{.ranges = slice_ranges(op, ir.tensor(op.inputs[0]).type.shape)};
  part.axes.resize(part.ranges.size());
  std::iota(part.axes.begin(), part.axes.end(), std::size_t{0});
  part.at.assign(part.ranges.size(), 0);
  return {std::move(part)};
}

std::vector<OutputDef> infer_slice(const InferContext& context) {
  return reshaped(context, slice_view(context.op, context.type(0).shape).shape);
}

StridedView view_of_slice(const EvalSpec& spec) { return slice_view(spec.op, spec.inputs[0]->shape); }

GradValue slice_grad(Grad& g) {
  return g.call(
      "slice_grad", {g.dy()},
      {kShape(g.in_type(0).shape), g.same(kStart), g.same(kStop), g.same(kStep), g.same(kSliceAxes)});
}

std::vector<OutputDef> infer_slice_grad(const InferContext& context) {
  return reshaped(context, context.get(kShape));
}

BlockKernel eval_slice_grad(const EvalSpec& spec) {
  return embed_kernel(spec, slice_view(spec.op, spec.outputs[0].shape));
}

// Expand: the copy that undoes a sum over axes

std::vector<OutputDef> infer_expand(const InferContext& context) {
  const Shape& shape = context.get(kShape);
  if (std::ranges::any_of(shape, [](std::int64_t extent) { return extent < 0; })) {
    raise<AttributeValueError>("{}: extent is negative, got {}, expected 0 or more", context.name(),
                               to_string(shape));
  }
  if (broadcast_shapes(context.name(), context.type(0).shape, shape) != shape) {
    raise<ShapeError>("{}: shape is too small, got {} to {}, expected a shape it broadcasts to",
                      context.name(), describe(context, 0), to_string(shape));
  }
  return reshaped(context, shape);
}

StridedView expand_view(const EvalSpec& spec) {
  const Shape& shape = spec.outputs[0].shape;
  return {.shape = shape, .strides = broadcast_strides(spec.inputs[0]->shape, shape)};
}

GradValue expand_grad(Grad& g) { return g.sum_to_input(0, g.dy()); }

/// Gradients of sums have it under a name of their own, so that plans tell them from the user's.
std::vector<OpDef> expand_ops() {
  const OpDef expand{.name = "expand",
                     .inputs = {{"t"}},
                     .attrs = {required(kShape)},
                     .infer = infer_expand,
                     .kernel = of_view<expand_view>(),
                     .grad = per_input({expand_grad}),
                     .numerics = {.linear = Linear::kMove}};
  OpDef of_gradients = expand;
  of_gradients.name = "broadcast_to";
  of_gradients.program.internal = true;
  return {expand, of_gradients};
}

/// Absent lists mean the whole extent (start, stop), 1 (step) and 0, 1, ... (axis). One absent bound inside a
/// list is written as the least or greatest integer, which is clamped.
std::vector<OpDef> slice_ops() {
  const std::vector<AttrDef> lists = {optional(kStart), optional(kStop), optional(kStep),
                                      optional(kSliceAxes)};
  std::vector<AttrDef> with_shape = lists;
  with_shape.push_back(required(kShape));
  return {
      {.name = "slice",
       .inputs = {{"t"}},
       .attrs = lists,
       .infer = infer_slice,
       .kernel = of_view<view_of_slice>(),
       .grad = per_input({slice_grad}),
       .numerics = {.linear = Linear::kAll}},
      {.name = "slice_",
       .inputs = {{"t"}},
       .attrs = lists,
       .infer = infer_slice,
       .kernel = {.eval = eval_view},
       .grad = {.missing = NoGrad::kThrows},
       .memory = {.view = slice_part, .write_back = write_back_view}},
      {.name = "slice_grad",
       .inputs = {{"dy"}},
       .attrs = with_shape,
       .infer = infer_slice_grad,
       .kernel = {.eval = eval_slice_grad},
       .program = {.internal = true}},
  };
}

/// Views of the whole operand. Gradients stop there.
std::vector<OpDef> view_ops() {
  return {
      {.name = "transpose_",
       .inputs = {{"t"}},
       .attrs = {optional(kPermutation)},
       .infer = infer_transpose,
       .kernel = {.eval = eval_view},
       .memory = {.view = transpose_part, .write_back = write_back_view}},
      {.name = "reshape_",
       .inputs = {{"t"}},
       .attrs = {required(kShape)},
       .infer = infer_reshape,
       .kernel = {.eval = eval_view},
       .memory = {.view = same_order, .write_back = write_back_view}},
      {.name = "flatten_",
       .inputs = {{"t"}},
       .infer = infer_flatten,
       .kernel = {.eval = eval_view},
       .memory = {.view = same_order, .write_back = write_back_view}},
      {.name = "detach",
       .inputs = {{"t"}},
       .infer = same_as_input,
       .kernel = {.eval = eval_copy},
       .memory = {.same_bytes = true}},
      {.name = "detach_",
       .inputs = {{"t"}},
       .infer = same_as_input,
       .kernel = {.eval = eval_view},
       .memory = {.view = same_order, .write_back = write_back_view}},
  };
}

}  // namespace

std::vector<OpDef> shape_ops() {
  std::vector<OpDef> ops = {
      {.name = "transpose",
       .inputs = {{"t"}},
       .attrs = {optional(kPermutation)},
       .infer = infer_transpose,
       .kernel = of_view<transpose_view>(),
       .grad = per_input({transpose_grad}),
       .numerics = {.linear = Linear::kMove}},
      {.name = "reshape",
       .inputs = {{"t"}},
       .attrs = {required(kShape)},
       .infer = infer_reshape,
       .kernel = {.eval = eval_copy},
       .grad = per_input({reshape_grad}),
       .memory = {.same_bytes = true}},
      {.name = "flatten",
       .inputs = {{"t"}},
       .infer = infer_flatten,
       .kernel = {.eval = eval_copy},
       .grad = per_input({reshape_grad}),
       .memory = {.same_bytes = true}},
      {.name = "squeeze",
       .inputs = {{"t"}},
       .attrs = {optional(kAxes)},
       .infer = infer_squeeze,
       .kernel = {.eval = eval_copy},
       .grad = per_input({reshape_grad}),
       .memory = {.same_bytes = true}},
  };
  for (OpDef& op : expand_ops()) ops.push_back(std::move(op));
  for (OpDef& op : slice_ops()) ops.push_back(std::move(op));
  for (OpDef& op : view_ops()) ops.push_back(std::move(op));
  return ops;
}

}  // namespace popsr
