// Ops that address one axis by an index tensor: gather, scatter, scatter_reduce and their gradients.
//
// Indices count from 0; one outside the axis is an error when the program runs, unless zero_OOR says zeros.
// Several elements at one position are reduced in ascending order along the axis: the last one
// stays when nothing is reduced.
#include <algorithm>

#include "popsr/base/error.h"
#include "popsr/exec/block_kernel.h"
#include "popsr/ops/attributes.h"
#include "popsr/ops/indexing/indexing_kernels.h"
#include "popsr/ops/infer.h"
#include "popsr/ops/registry.h"

namespace popsr {
namespace {

constexpr Attr<double> kAvailableMemory{"available_memory_proportion"};
constexpr Attr<bool> kZeroOutOfRange{"zero_OOR"};
constexpr Attr<std::int64_t> kGroupSize{"group_size"};
constexpr Attr<std::int64_t> kAxisSize{"axis_size"};
constexpr Attr<bool> kIndexBroadcast{"enable_index_broadcast"};
constexpr Attr<bool> kLastOnly{"last_only"};

/// Reductions of elements with equal positions.
constexpr Choice<IndexReduction> kReductions[] = {{"sum", IndexReduction::kSum},
                                                  {"max", IndexReduction::kMax},
                                                  {"min", IndexReduction::kMin},
                                                  {"none", IndexReduction::kLast}};
constexpr ChoiceAttr<IndexReduction> kReduction{"reduction", kReductions};

constexpr std::size_t kData = 0, kIndices = 1;
constexpr std::size_t kValues = 2;   ///< Index of an input of scatter.
constexpr std::size_t kInitial = 2;  ///< Index of an input of scatter_reduce.

std::size_t axis_of(const Op& op, std::size_t rank) {
  return static_cast<std::size_t>(normalize_axis(op.def->name, op.get(kAxis), rank));
}

std::int64_t product(Shape::const_iterator begin, Shape::const_iterator end) {
  return num_elements(Shape(begin, end));
}

// Gather, tied_gather, groupedgather

/// Number of groups, for ops that have them: dimension 0 of the operands if there is more than one.
std::int64_t groups_of(const Op& op) {
  const bool has_groups =
      std::ranges::any_of(op.def->attrs, [](const AttrDef& attr) { return attr.name == kGroupSize.name; });
  return has_groups ? op.get(kGroupSize) : 1;
}

void check_groups(const InferContext& context, std::size_t axis, std::int64_t groups) {
  if (groups < 1) {
    raise<AttributeValueError>("{}: group_size is not positive, got {}, expected 1 or more", context.name(),
                               groups);
  }
  if (groups == 1) return;
  if (axis == 0) {
    raise<AttributeValueError>("{}: axis is the axis of the groups, got 0, expected 1 or more",
                               context.name());
  }
  for (const std::size_t input : {std::size_t{0}, std::size_t{1}}) {
    const Shape& shape = context.type(input).shape;
    if (!shape.empty() && shape[0] == groups) continue;
    raise<ShapeError>("{}: operand has another number of groups, got {}, expected {} on axis 0",
                      context.name(), describe(context, input), groups);
  }
}

std::vector<OutputDef> infer_gather(const InferContext& context) {
  const TensorType& t = context.type(0);
  const Shape& indices = context.type(1).shape;
  const std::size_t axis = axis_of(context.op, t.shape.size());
  const std::int64_t groups = groups_of(context.op);
  check_groups(context, axis, groups);
  const auto at = t.shape.begin() + static_cast<std::ptrdiff_t>(axis);
  Shape shape(t.shape.begin(), at);
  shape.insert(shape.end(), indices.begin() + (groups > 1 ? 1 : 0), indices.end());
  shape.insert(shape.end(), at + 1, t.shape.end());
  return {{{t.dtype, std::move(shape)}, {}}};
}

/// Both sides as (groups, before the axis, axis, after the axis).
IndexedAxis gather_walk(const Op& op, const Shape& t, const Shape& indices) {
  const auto at = t.begin() + static_cast<std::ptrdiff_t>(axis_of(op, t.size()));
  const std::int64_t groups = groups_of(op);
  const std::ptrdiff_t skipped = groups > 1 ? 1 : 0;
  const std::int64_t before = product(t.begin() + skipped, at), after = product(at + 1, t.end());
  const std::int64_t count = product(indices.begin() + skipped, indices.end());
  return {.loop = {groups, before, count, after},
          .indexed = {groups, before, *at, after},
          .index_strides = {count, 0, 1, 0},
          .axis = 2};
}

BlockKernel eval_gather(const EvalSpec& spec) {
  return take_kernel(spec, gather_walk(spec.op, spec.inputs[0]->shape, spec.inputs[1]->shape),
                     {.zero_out_of_range = spec.op.get(kZeroOutOfRange)});
}

GradValue gather_grad(Grad& g) {
  return g.call("gather_grad", {g.dy(), g.x(kIndices)},
                {kShape(g.in_type(kData).shape), g.same(kAxis), kGroupSize(groups_of(g.op())),
                 g.same(kZeroOutOfRange)});
}

BlockKernel eval_gather_grad(const EvalSpec& spec) {
  return scatter_kernel(
      spec, gather_walk(spec.op, spec.outputs[0].shape, spec.inputs[1]->shape),
      {.reduction = IndexReduction::kSum, .skip_out_of_range = spec.op.get(kZeroOutOfRange)});
}

// Scatter, scatter_reduce

/// The shape of indices with the rank of `loop`: a vector (in each group) lies along the axis, other shapes
/// are filled up at the end.
Shape aligned(const Op& op, const Shape& indices, const Shape& loop, std::size_t axis) {
  const std::size_t skipped = groups_of(op) > 1 ? 1 : 0;
  const auto first = indices.begin() + static_cast<std::ptrdiff_t>(skipped);
  Shape shape(indices.begin(), first);
  if (indices.size() == skipped + 1) shape.resize(axis, 1);
  shape.insert(shape.end(), first, indices.end());
  if (shape.size() < loop.size()) shape.resize(loop.size(), 1);
  return shape;
}

IndexedAxis element_walk(const Op& op, const Shape& loop, const Shape& indexed, const Shape& indices) {
  const std::size_t axis = axis_of(op, loop.size());
  return {.loop = loop,
          .indexed = indexed,
          .index_strides = broadcast_strides(aligned(op, indices, loop, axis), loop),
          .axis = axis};
}

std::vector<OutputDef> infer_scatter(const InferContext& context) {
  require_equal_dtypes(context, kData, kValues);
  require_equal_shapes(context, kIndices, kValues);
  const Shape& t = context.type(kData).shape;
  const Shape& values = context.type(kValues).shape;
  const std::size_t axis = axis_of(context.op, t.size());
  bool fits = values.size() == t.size();
  for (std::size_t d = 0; d < t.size() && fits; ++d) fits = d == axis || values[d] <= t[d];
  if (!fits) {
    raise<ShapeError>(
        "{}: values do not fit, got {} into {}, expected equal ranks and no greater extent but "
        "on axis {}",
        context.name(), describe(context, kValues), describe(context, kData), axis);
  }
  return {{context.type(0), {}}};
}

BlockKernel eval_scatter(const EvalSpec& spec) {
  const Shape& values = spec.inputs[kValues]->shape;
  return scatter_kernel(spec, element_walk(spec.op, values, spec.outputs[0].shape, spec.inputs[1]->shape),
                        {.values = kValues, .initial = kData});
}

/// Gradient of elements that are overwritten, and of elements that are not.
GradValue cleared(Grad& g, const Shape& loop) {
  return g.call("scatter_clear", {g.dy(), g.x(kIndices)},
                {g.same(kAxis), kShape(loop), kGroupSize(groups_of(g.op()))});
}
GradValue taken(Grad& g, const GradValue& from, const Shape& loop, bool last_only) {
  return g.call("take_along", {from, g.x(kIndices)},
                {g.same(kAxis), kShape(loop), kLastOnly(last_only), kGroupSize(groups_of(g.op()))});
}

GradAspect scatter_grad() {
  return per_input({[](Grad& g) { return cleared(g, g.in_type(kValues).shape); }, nullptr,
                    [](Grad& g) { return taken(g, g.dy(), g.in_type(kValues).shape, true); }});
}

void check_indices(const InferContext& context, std::size_t axis) {
  const Shape& data = context.type(0).shape;
  const Shape& indices = context.type(1).shape;
  bool fits = indices == data;
  if (!fits && context.get(kIndexBroadcast) && indices.size() <= data.size()) {
    const Shape shape = aligned(context.op, indices, data, axis);
    fits = true;
    for (std::size_t d = 0; d < data.size() && fits; ++d) fits = shape[d] == data[d] || shape[d] == 1;
  }
  if (!fits) {
    raise<ShapeError>("{}: indices do not match data, got {} and {}, expected {}", context.name(),
                      describe(context, 1), describe(context, 0),
                      context.get(kIndexBroadcast) ? "what broadcasts to its shape" : "its shape");
  }
}

std::vector<OutputDef> infer_scatter_reduce(const InferContext& context) {
  Shape shape = context.type(kData).shape;
  const std::size_t axis = axis_of(context.op, shape.size());
  check_groups(context, axis, groups_of(context.op));
  check_indices(context, axis);
  const auto size = context.find(kAxisSize);
  const bool has_initial = context.has(kInitial);
  if (!size && !has_initial) {
    raise<AttributeValueError>(
        "{}: the size of the result is missing, got neither, expected "
        "initial_values or axis_size",
        context.name());
  }
  if (size && *size < 0) {
    raise<AttributeValueError>("{}: axis_size is negative, got {}, expected 0 or more", context.name(),
                               *size);
  }
  if (has_initial) require_equal_dtypes(context, kData, kInitial);
  const Shape& initial = has_initial ? context.type(kInitial).shape : shape;
  shape[axis] = size ? *size : initial.size() == shape.size() ? initial[axis] : 0;
  if (has_initial && initial != shape) {
    raise<ShapeError>(
        "{}: initial_values do not match, got {}, expected the shape of data {} with {} on "
        "axis {}",
        context.name(), describe(context, kInitial), describe(context, 0),
        size ? std::to_string(*size) : "any extent", axis);
  }
  return {{{context.type(0).dtype, std::move(shape)}, {}}};
}

BlockKernel eval_scatter_reduce(const EvalSpec& spec) {
  ScatterOptions options{.reduction = spec.op.get(kReduction)};
  if (spec.inputs.size() > kInitial && spec.inputs[kInitial]) options.initial = kInitial;
  return scatter_kernel(
      spec, element_walk(spec.op, spec.inputs[0]->shape, spec.outputs[0].shape, spec.inputs[1]->shape),
      options);
}

/// A largest or smallest element that occurs several times receives the whole gradient each time.
bool selects(const Grad& g) {
  const IndexReduction reduction = g.get(kReduction);
  return reduction == IndexReduction::kMax || reduction == IndexReduction::kMin;
}

GradValue reduced_data_grad(Grad& g) {
  const Shape& loop = g.in_type(kData).shape;
  const GradValue dy = taken(g, g.dy(), loop, g.get(kReduction) == IndexReduction::kLast).now();
  if (!selects(g)) return dy;
  return g.call("equal_mask", {g.x(kData), taken(g, g.y(), loop, false)}) * dy;
}

GradValue initial_grad(Grad& g) {
  const bool replaces = g.get(kReduction) == IndexReduction::kLast;
  const GradValue dy = replaces ? cleared(g, g.in_type(kData).shape) : g.dy();
  return selects(g) ? g.call("equal_mask", {g.x(kInitial), g.y()}) * dy : dy;
}

// Their gradients: take_along, scatter_clear

BlockKernel eval_take_along(const EvalSpec& spec) {
  return take_kernel(
      spec, element_walk(spec.op, spec.outputs[0].shape, spec.inputs[0]->shape, spec.inputs[1]->shape),
      {.last_only = spec.op.get(kLastOnly)});
}

BlockKernel eval_scatter_clear(const EvalSpec& spec) {
  return clear_kernel(
      spec, element_walk(spec.op, spec.op.get(kShape), spec.inputs[0]->shape, spec.inputs[1]->shape));
}

// Definitions

AttrDef axis_attr() { return optional(kAxis, 0); }
AttrDef memory_attr() { return optional(kAvailableMemory); }
AttrDef groups_attr() { return optional(kGroupSize, 1); }
AttrDef zero_attr() { return optional(kZeroOutOfRange, false); }
InputDef indices_input() { return {.name = "indices", .dtypes = kIntegers}; }

std::vector<OpDef> gather_ops() {
  OpDef gather{.name = "gather",
               .inputs = {{"t"}, indices_input()},
               .attrs = {axis_attr(), memory_attr(), zero_attr()},
               .infer = infer_gather,
               .kernel = {.eval = eval_gather},
               .grad = per_input({gather_grad})};
  OpDef tied = gather, grouped = gather;
  tied.name = "tied_gather";
  grouped.name = "groupedgather";
  grouped.attrs.insert(grouped.attrs.begin() + 1, groups_attr());
  OpDef gradient{.name = "gather_grad",
                 .inputs = {{"dy", kFloating}, indices_input()},
                 .attrs = {required(kShape), axis_attr(), required(kGroupSize), zero_attr()},
                 .infer = of_given_shape,
                 .kernel = {.eval = eval_gather_grad},
                 .numerics = kRoundsOnce,
                 .program = {.internal = true}};
  return {gather, tied, grouped, gradient};
}

std::vector<OpDef> scatter_ops() {
  OpDef reduce{.name = "scatter_reduce",
               .inputs = {{"data", kNumbers},
                          indices_input(),
                          {.name = "initial_values", .dtypes = kNumbers, .optional = true}},
               .attrs = {required(kReduction), axis_attr(), optional(kAxisSize),
                         optional(kIndexBroadcast, true), memory_attr()},
               .infer = infer_scatter_reduce,
               .kernel = {.eval = eval_scatter_reduce},
               .grad = per_input({reduced_data_grad, nullptr, initial_grad}),
               .numerics = kRoundsOnce};
  OpDef grouped = reduce;
  grouped.name = "grouped_scatter_reduce";
  grouped.attrs.insert(grouped.attrs.begin() + 3, groups_attr());
  return {
      std::move(reduce),
      std::move(grouped),
      {.name = "scatter",
       .inputs = {{"t"}, indices_input(), {"values"}},
       .attrs = {axis_attr(), memory_attr()},
       .infer = infer_scatter,
       .kernel = {.eval = eval_scatter},
       .grad = scatter_grad()},
      {.name = "take_along",
       .inputs = {{"t"}, indices_input()},
       .attrs = {axis_attr(), required(kShape), required(kLastOnly), groups_attr()},
       .infer = of_given_shape,
       .kernel = {.eval = eval_take_along},
       .program = {.internal = true}},
      {.name = "scatter_clear",
       .inputs = {{"dy"}, indices_input()},
       .attrs = {axis_attr(), required(kShape), groups_attr()},
       .infer = same_as_input,
       .kernel = {.eval = eval_scatter_clear},
       .program = {.internal = true}},
  };
}

}  // namespace

std::vector<OpDef> indexing_ops() {
  std::vector<OpDef> ops = gather_ops();
  for (OpDef& op : scatter_ops()) ops.push_back(std::move(op));
  return ops;
}

}  // namespace popsr
