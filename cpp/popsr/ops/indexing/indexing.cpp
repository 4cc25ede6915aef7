// Ops that address one axis by an index tensor: gather, scatter, scatter_reduce and their gradients.
//
// Indices count from 0; one outside the axis is an error when the program runs, unless zero_OOR says zeros.
// Where several elements meet at one position they are folded in ascending order along the axis: the last one
// stays when nothing is reduced.
#include <algorithm>

#include "popsr/base/error.h"
#include "popsr/ops/indexing/kernels.h"
#include "popsr/ops/infer.h"
#include "popsr/ops/registry.h"

namespace popsr {
namespace {

using Ints = std::vector<std::int64_t>;

std::size_t axis_of(const Op& op, std::size_t rank) {
  return static_cast<std::size_t>(normalize_axis(op.def->name, op.attr<std::int64_t>("axis"), rank));
}

std::int64_t product(Shape::const_iterator begin, Shape::const_iterator end) {
  return num_elements(Shape(begin, end));
}

// ---- gather, tied_gather, groupedgather

/// Of ops that have groups: dimension 0 of the operands when there is more than one.
std::int64_t groups_of(const Op& op) {
  const bool has_groups =
      std::ranges::any_of(op.def->attrs, [](const AttrDef& attr) { return attr.name == "group_size"; });
  return has_groups ? op.attr<std::int64_t>("group_size") : 1;
}

void check_groups(const InferContext& context, std::size_t axis, std::int64_t groups) {
  if (groups < 1) {
    raise<AttributeValueError>("{}: group_size is not positive, got {}, expected 1 or more", context.name(),
                               groups);
  }
  if (groups == 1) return;
  if (axis == 0) {
    raise<AttributeValueError>("{}: axis is that of the groups, got 0, expected 1 or more", context.name());
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
                     {.zero_out_of_range = spec.op.attr<bool>("zero_OOR")});
}

void gather_rule(GradContext& g) {
  if (!differentiates(g, 0)) return;
  g.set(0, g.emit("gather_grad", {g.cotangent(0), g.in(1)},
                  {{"shape", g.in_type(0).shape},
                   {"axis", g.op().attribute("axis")},
                   {"group_size", groups_of(g.op())},
                   {"zero_OOR", g.op().attribute("zero_OOR")}}));
}

std::vector<OutputDef> infer_gather_grad(const InferContext& context) {
  return {{{context.type(0).dtype, context.op.attr<Ints>("shape")}, {}}};
}

BlockKernel eval_gather_grad(const EvalSpec& spec) {
  return scatter_kernel(spec, gather_walk(spec.op, spec.outputs[0].shape, spec.inputs[1]->shape),
                        {.fold = IndexFold::kSum, .skip_out_of_range = spec.op.attr<bool>("zero_OOR")});
}

// ---- scatter, scatter_reduce

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
  require_equal_dtypes(context, 0, 2);
  require_equal_shapes(context, 1, 2);
  const Shape& t = context.type(0).shape;
  const Shape& values = context.type(2).shape;
  const std::size_t axis = axis_of(context.op, t.size());
  bool fits = values.size() == t.size();
  for (std::size_t d = 0; d < t.size() && fits; ++d) fits = d == axis || values[d] <= t[d];
  if (!fits) {
    raise<ShapeError>(
        "{}: values do not fit, got {} into {}, expected equal ranks and no greater extent but "
        "on axis {}",
        context.name(), describe(context, 2), describe(context, 0), axis);
  }
  return {{context.type(0), {}}};
}

BlockKernel eval_scatter(const EvalSpec& spec) {
  const Shape& values = spec.inputs[2]->shape;
  return scatter_kernel(spec, element_walk(spec.op, values, spec.outputs[0].shape, spec.inputs[1]->shape),
                        {.values = 2, .initial = 0});
}

/// Gradient of what is overwritten, and of what stays.
TensorId cleared(GradContext& g, const Shape& loop) {
  return g.emit("scatter_clear", {g.cotangent(0), g.in(1)},
                {{"axis", g.op().attribute("axis")}, {"shape", loop}, {"group_size", groups_of(g.op())}});
}
TensorId taken(GradContext& g, TensorId from, const Shape& loop, bool last_only) {
  return g.emit("take_along", {from, g.in(1)},
                {{"axis", g.op().attribute("axis")},
                 {"shape", loop},
                 {"last_only", last_only},
                 {"group_size", groups_of(g.op())}});
}

void scatter_rule(GradContext& g) {
  const Shape loop = g.in_type(2).shape;
  if (differentiates(g, 0)) g.set(0, cleared(g, loop));
  if (differentiates(g, 2)) g.set(2, taken(g, g.cotangent(0), loop, true));
}

IndexFold fold_of(const Op& op) {
  const auto& name = op.attr<std::string>("reduction");
  if (name == "sum") return IndexFold::kSum;
  if (name == "max") return IndexFold::kMax;
  if (name == "min") return IndexFold::kMin;
  if (name == "none") return IndexFold::kLast;
  raise<AttributeValueError>("{}: unknown reduction, got '{}', expected sum, max, min or none", op.def->name,
                             name);
}

void check_indices(const InferContext& context, std::size_t axis) {
  const Shape& data = context.type(0).shape;
  const Shape& indices = context.type(1).shape;
  bool fits = indices == data;
  if (!fits && context.op.attr<bool>("enable_index_broadcast") && indices.size() <= data.size()) {
    const Shape shape = aligned(context.op, indices, data, axis);
    fits = true;
    for (std::size_t d = 0; d < data.size() && fits; ++d) fits = shape[d] == data[d] || shape[d] == 1;
  }
  if (!fits) {
    raise<ShapeError>(
        "{}: indices do not match data, got {} and {}, expected {}", context.name(), describe(context, 1),
        describe(context, 0),
        context.op.attr<bool>("enable_index_broadcast") ? "what broadcasts to its shape" : "its shape");
  }
}

std::vector<OutputDef> infer_scatter_reduce(const InferContext& context) {
  constexpr std::size_t kInitial = 2;
  fold_of(context.op);
  Shape shape = context.type(0).shape;
  const std::size_t axis = axis_of(context.op, shape.size());
  check_groups(context, axis, groups_of(context.op));
  check_indices(context, axis);
  const auto size = context.op.optional_attr<std::int64_t>("axis_size");
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
  if (has_initial) require_equal_dtypes(context, 0, kInitial);
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
  ScatterOptions options{.fold = fold_of(spec.op)};
  if (spec.inputs.size() > 2 && spec.inputs[2]) options.initial = 2;
  return scatter_kernel(
      spec, element_walk(spec.op, spec.inputs[0]->shape, spec.outputs[0].shape, spec.inputs[1]->shape),
      options);
}

/// Where a largest or smallest element is met several times, each receives the whole gradient.
void scatter_reduce_rule(GradContext& g) {
  const Shape loop = g.in_type(0).shape;
  const IndexFold fold = fold_of(g.op());
  const bool selects = fold == IndexFold::kMax || fold == IndexFold::kMin;
  const bool replaces = fold == IndexFold::kLast;
  if (differentiates(g, 0)) {
    const TensorId dy = taken(g, g.cotangent(0), loop, replaces);
    g.set(0, selects ? g.emit("mul", {g.emit("equal_mask", {g.in(0), taken(g, g.out(0), loop, false)}), dy})
                     : dy);
  }
  if (g.wants(2)) {
    const TensorId dy = replaces ? cleared(g, loop) : g.cotangent(0);
    g.set(2, selects ? g.emit("mul", {g.emit("equal_mask", {g.in(2), g.out(0)}), dy}) : dy);
  }
}

// ---- their gradients: take_along, scatter_clear

std::vector<OutputDef> infer_take_along(const InferContext& context) {
  return {{{context.type(0).dtype, context.op.attr<Ints>("shape")}, {}}};
}

BlockKernel eval_take_along(const EvalSpec& spec) {
  return take_kernel(
      spec, element_walk(spec.op, spec.outputs[0].shape, spec.inputs[0]->shape, spec.inputs[1]->shape),
      {.last_only = spec.op.attr<bool>("last_only")});
}

BlockKernel eval_scatter_clear(const EvalSpec& spec) {
  return clear_kernel(
      spec, element_walk(spec.op, spec.op.attr<Ints>("shape"), spec.inputs[0]->shape, spec.inputs[1]->shape));
}

// ---- definitions

AttrDef axis_attr() { return optional("axis", AttrType::kInt, std::int64_t{0}); }
AttrDef memory_attr() { return optional("available_memory_proportion", AttrType::kFloat); }
AttrDef groups_attr() { return optional("group_size", AttrType::kInt, std::int64_t{1}); }
AttrDef zero_attr() { return optional("zero_OOR", AttrType::kBool, false); }
InputDef indices_input() { return {.name = "indices", .dtypes = kIntegers}; }

std::vector<OpDef> gather_ops() {
  OpDef gather{.name = "gather",
               .inputs = {{"t"}, indices_input()},
               .attrs = {axis_attr(), memory_attr(), zero_attr()},
               .infer = infer_gather,
               .kernel = {.eval = eval_gather},
               .grad = {.rule = gather_rule}};
  OpDef tied = gather, grouped = gather;
  tied.name = "tied_gather";
  grouped.name = "groupedgather";
  grouped.attrs.insert(grouped.attrs.begin() + 1, groups_attr());
  OpDef gradient{.name = "gather_grad",
                 .inputs = {{"dy", kFloating}, indices_input()},
                 .attrs = {required("shape", AttrType::kInts), axis_attr(),
                           required("group_size", AttrType::kInt), zero_attr()},
                 .infer = infer_gather_grad,
                 .kernel = {.eval = eval_gather_grad},
                 .numerics = kRoundsOnce,
                 .program = {.internal = true}};
  return {gather, tied, grouped, gradient};
}

std::vector<OpDef> scatter_ops() {
  OpDef reduce{
      .name = "scatter_reduce",
      .inputs = {{"data", kNumbers},
                 indices_input(),
                 {.name = "initial_values", .dtypes = kNumbers, .optional = true}},
      .attrs = {required("reduction", AttrType::kString), axis_attr(), optional("axis_size", AttrType::kInt),
                optional("enable_index_broadcast", AttrType::kBool, true), memory_attr()},
      .infer = infer_scatter_reduce,
      .kernel = {.eval = eval_scatter_reduce},
      .grad = {.rule = scatter_reduce_rule},
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
       .grad = {.rule = scatter_rule}},
      {.name = "take_along",
       .inputs = {{"t"}, indices_input()},
       .attrs = {axis_attr(), required("shape", AttrType::kInts), required("last_only", AttrType::kBool),
                 groups_attr()},
       .infer = infer_take_along,
       .kernel = {.eval = eval_take_along},
       .program = {.internal = true}},
      {.name = "scatter_clear",
       .inputs = {{"dy"}, indices_input()},
       .attrs = {axis_attr(), required("shape", AttrType::kInts), groups_attr()},
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
