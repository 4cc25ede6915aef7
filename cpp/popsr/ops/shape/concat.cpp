// concat: several tensors side by side, copied or as one view of all.
#include "popsr/base/error.h"
#include "popsr/exec/block_kernel.h"
#include "popsr/ops/attributes.h"
#include "popsr/ops/infer.h"
#include "popsr/ops/registry.h"
#include "popsr/ops/shape/view_kernels.h"

namespace popsr {
namespace {

std::size_t axis_of(const Op& op, std::size_t rank) {
  return static_cast<std::size_t>(normalize_axis(op.def->name, op.get(kAxis), rank));
}

std::vector<OutputDef> infer_concat(const InferContext& context) {
  if (context.op.inputs.empty()) raise<GraphError>("{}: no operands, expected at least one", context.name());
  Shape shape = context.type(0).shape;
  const std::size_t axis = axis_of(context.op, shape.size());
  for (std::size_t i = 1; i < context.op.inputs.size(); ++i) {
    require_equal_dtypes(context, 0, i);
    const Shape& next = context.type(i).shape;
    Shape expected = context.type(0).shape;
    if (next.size() == expected.size()) expected[axis] = next[axis];
    if (next != expected) {
      raise<ShapeError>("{}: shapes differ beside axis {}, got {} and {}, expected equal other extents",
                        context.name(), axis, describe(context, 0), describe(context, i));
    }
    if (__builtin_add_overflow(shape[axis], next[axis], &shape[axis])) {
      raise<ShapeError>("{}: tensor is too big, got 2**63 positions or more on axis {}, expected fewer",
                        context.name(), axis);
    }
  }
  return {{{context.type(0).dtype, std::move(shape)}, {}}};
}

std::vector<ViewPart> concat_parts(const Ir& ir, const Op& op) {
  std::vector<ViewPart> parts;
  std::int64_t at = 0;
  for (const TensorId id : op.inputs) {
    const Shape& shape = ir.tensor(id).type.shape;
    ViewPart& part = parts.emplace_back();
    for (std::size_t d = 0; d < shape.size(); ++d) {
      part.ranges.push_back({0, 1, shape[d]});
      part.axes.push_back(d);
    }
    part.at.assign(shape.size(), 0);
    const std::size_t axis = axis_of(op, shape.size());
    part.at[axis] = at;
    at += shape[axis];
  }
  return parts;
}

BlockKernel eval_concat(const EvalSpec& spec) { return join_kernel(spec, concat_parts(spec.ir, spec.op)); }

Slices concat_slices(const EvalSpec& spec) {
  const bool of_one = std::ranges::all_of(spec.inputs, [](const std::optional<TensorType>& type) {
    return !type->shape.empty() && type->shape[0] == 1;
  });
  return of_one && axis_of(spec.op, spec.outputs[0].shape.size()) == 0 ? Slices::kJoined : Slices::kNone;
}

/// The part of dy that lies where input i does.
GradValue concat_grad(Grad& g, std::size_t i) {
  using Ints = std::vector<std::int64_t>;
  const std::size_t axis = axis_of(g.op(), g.out_type(0).shape.size());
  std::int64_t start = 0;
  for (std::size_t before = 0; before < i; ++before) start += g.in_type(before).shape[axis];
  return g.call("slice", {g.dy()},
                {{"start", Ints{start}},
                 {"stop", Ints{start + g.in_type(i).shape[axis]}},
                 {"step", Ints{1}},
                 {"axis", Ints{static_cast<std::int64_t>(axis)}}});
}

}  // namespace

std::vector<OpDef> concat_ops() {
  OpDef concat{.name = "concat",
               .inputs = {{.name = "ts", .variadic = true}},
               .attrs = {optional(kAxis, 0)},
               .infer = infer_concat,
               .kernel = {.eval = eval_concat, .slices = concat_slices},
               .grad = {.each = concat_grad},
               .numerics = {.linear = Linear::kAll}};
  OpDef view = concat;
  view.name = "concat_";
  view.kernel = {.eval = eval_view};
  view.memory.view = concat_parts;
  view.memory.write_back = write_back_view;
  return {concat, view};
}

}  // namespace popsr
