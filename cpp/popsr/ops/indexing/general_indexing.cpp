// gather_general and scatter_general: XLA's gather and scatter, whose indices are corners of windows.
//
// The last axis of the indices holds a corner. Several windows at one element are reduced in ascending order,
// the C order of the batch; the last one stays when nothing is reduced.
#include <algorithm>

#include "popsr/base/error.h"
#include "popsr/exec/block_kernel.h"
#include "popsr/ops/indexing/indexed_windows.h"
#include "popsr/ops/infer.h"
#include "popsr/ops/registry.h"

namespace popsr {
namespace {

using Ints = std::vector<std::int64_t>;

constexpr Attr<Shape> kSliceSizes{"slice_sizes"};
constexpr Attr<Ints> kOffsetDims{"offset_dims"};
constexpr Attr<Ints> kCollapsedDims{"collapsed_dims"};
constexpr Attr<Ints> kIndexMap{"index_map"};
constexpr Attr<Ints> kOperandBatchingDims{"operand_batching_dims"};
constexpr Attr<Ints> kIndicesBatchingDims{"indices_batching_dims"};
constexpr Attr<double> kFillValue{"fill_value"};
constexpr Attr<bool> kLastWindowOnly{"last_only"};

constexpr Choice<WindowBounds> kGatherBounds[] = {
    {"clip", WindowBounds::kClip}, {"fill", WindowBounds::kFill}, {"check", WindowBounds::kCheck}};
constexpr ChoiceAttr<WindowBounds> kGatherMode{"mode", kGatherBounds};
constexpr Choice<WindowBounds> kScatterBounds[] = {
    {"clip", WindowBounds::kClip}, {"drop", WindowBounds::kFill}, {"check", WindowBounds::kCheck}};
constexpr ChoiceAttr<WindowBounds> kScatterMode{"mode", kScatterBounds};
constexpr Choice<WindowReduction> kWindowReductions[] = {{"sum", WindowReduction::kSum},
                                                         {"mul", WindowReduction::kMul},
                                                         {"min", WindowReduction::kMin},
                                                         {"max", WindowReduction::kMax},
                                                         {"none", WindowReduction::kLast}};
constexpr ChoiceAttr<WindowReduction> kWindowReduction{"reduction", kWindowReductions};

constexpr std::size_t kCorners = 1, kUpdates = 2;  ///< Inputs.

WindowDims dims_of(const Op& op) {
  return {.offset_dims = op.get(kOffsetDims),
          .collapsed_dims = op.get(kCollapsedDims),
          .index_map = op.get(kIndexMap),
          .operand_batching_dims = op.get(kOperandBatchingDims),
          .indices_batching_dims = op.get(kIndicesBatchingDims)};
}

// Checks

bool names_axis(const Ints& axes, std::int64_t axis) { return std::ranges::find(axes, axis) != axes.end(); }

/// AttributeValueError unless the axes are different ones from 0 to rank - 1, and ascend where they must.
void check_window_axes(std::string_view op, const Attr<Ints>& attr, const Ints& axes, std::size_t rank,
                       bool ascending) {
  bool fits = !ascending || std::ranges::is_sorted(axes);
  for (std::size_t i = 0; i < axes.size() && fits; ++i) {
    fits =
        axes[i] >= 0 && axes[i] < static_cast<std::int64_t>(rank) && std::ranges::count(axes, axes[i]) == 1;
  }
  if (fits) return;
  raise<AttributeValueError>("{}: {} are not {}axes, got {}, expected different ones from 0 to {}", op,
                             attr.name, ascending ? "ascending " : "", to_string(axes),
                             static_cast<std::int64_t>(rank) - 1);
}

void check_batching(const InferContext& context, const WindowDims& dims) {
  const Shape& tensor = context.type(0).shape;
  const Shape& indices = context.type(kCorners).shape;
  bool fits = dims.operand_batching_dims.size() == dims.indices_batching_dims.size();
  for (std::size_t k = 0; k < dims.operand_batching_dims.size() && fits; ++k) {
    fits = tensor[static_cast<std::size_t>(dims.operand_batching_dims[k])] ==
           indices[static_cast<std::size_t>(dims.indices_batching_dims[k])];
  }
  if (fits) return;
  raise<ShapeError>("{}: batching axes do not match, got {} of {} and {} of {}, expected equal extents",
                    context.name(), to_string(dims.operand_batching_dims), describe(context, 0),
                    to_string(dims.indices_batching_dims), describe(context, kCorners));
}

/// The attributes, for windows of that rank.
WindowDims checked_dims(const InferContext& context, std::size_t windows_rank) {
  WindowDims dims = dims_of(context.op);
  const std::string_view op = context.name();
  const std::size_t rank = context.type(0).shape.size();
  const Shape& indices = context.type(kCorners).shape;
  if (indices.empty()) {
    raise<ShapeError>("{}: indices have no axis of corners, got {}, expected rank >= 1", op,
                      describe(context, kCorners));
  }
  check_window_axes(op, kCollapsedDims, dims.collapsed_dims, rank, true);
  check_window_axes(op, kOperandBatchingDims, dims.operand_batching_dims, rank, true);
  check_window_axes(op, kIndicesBatchingDims, dims.indices_batching_dims, indices.size() - 1, false);
  check_window_axes(op, kIndexMap, dims.index_map, rank, false);
  check_window_axes(op, kOffsetDims, dims.offset_dims, windows_rank, true);
  for (const std::int64_t axis : dims.operand_batching_dims) {
    if (!names_axis(dims.collapsed_dims, axis) && !names_axis(dims.index_map, axis)) continue;
    raise<AttributeValueError>(
        "{}: axis has two roles, got {} in operand_batching_dims and another list, "
        "expected one",
        op, axis);
  }
  if (indices.back() != static_cast<std::int64_t>(dims.index_map.size())) {
    raise<ShapeError>("{}: corners do not match, got {} for index_map {}, expected {} on the last axis", op,
                      describe(context, kCorners), to_string(dims.index_map), dims.index_map.size());
  }
  const std::size_t spanned = dims.window_axes(rank).size();
  if (dims.offset_dims.size() != spanned) {
    raise<AttributeValueError>("{}: offset_dims do not match, got {}, expected {} for windows of {}", op,
                               to_string(dims.offset_dims), spanned, describe(context, 0));
  }
  check_batching(context, dims);
  return dims;
}

// Gather

std::vector<OutputDef> infer_gather_general(const InferContext& context) {
  const TensorType& t = context.type(0);
  const Shape& indices = context.type(kCorners).shape;
  const Shape& sizes = context.get(kSliceSizes);
  const std::size_t batch = indices.empty() ? 0 : indices.size() - 1;
  const WindowDims dims = checked_dims(context, batch + context.get(kOffsetDims).size());
  const std::vector<std::size_t> axes = dims.window_axes(t.shape.size());
  bool fits = sizes.size() == t.shape.size();
  for (std::size_t d = 0; d < sizes.size() && fits; ++d) {
    const bool spans = std::ranges::binary_search(axes, d);
    fits = sizes[d] <= t.shape[d] && (spans ? sizes[d] >= 0 : sizes[d] == 1);
  }
  if (!fits) {
    raise<ShapeError>(
        "{}: slice_sizes do not fit, got {} in {}, expected at most its shape, and 1 on axes "
        "that are left out",
        context.name(), to_string(sizes), describe(context, 0));
  }
  Shape shape(batch + axes.size());
  std::size_t next_window = 0, next_batch = 0;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    const bool window = std::ranges::binary_search(dims.offset_dims, static_cast<std::int64_t>(d));
    shape[d] = window ? sizes[axes[next_window++]] : indices[next_batch++];
  }
  return {{{t.dtype, std::move(shape)}, {}}};
}

BlockKernel eval_gather_general(const EvalSpec& spec) {
  return take_windows(spec,
                      {.dims = dims_of(spec.op),
                       .tensor = spec.inputs[0]->shape,
                       .indices = spec.inputs[kCorners]->shape,
                       .windows = spec.outputs[0].shape,
                       .sizes = spec.op.get(kSliceSizes),
                       .bounds = spec.op.get(kGatherMode)},
                      spec.op.get(kFillValue), spec.op.get(kLastWindowOnly));
}

std::vector<NamedAttribute> same_dims(const Grad& g) {
  return {g.same(kOffsetDims), g.same(kCollapsedDims), g.same(kIndexMap), g.same(kOperandBatchingDims),
          g.same(kIndicesBatchingDims)};
}

GradValue gather_general_grad(Grad& g) {
  std::vector<NamedAttribute> attrs = same_dims(g);
  attrs.push_back(kScatterMode(g.get(kGatherMode)));
  return g.call("scatter_general", {g.zeros_like_input(0), g.x(kCorners), g.dy()}, std::move(attrs));
}

// Scatter

/// Sizes of a window on the axes of the tensor.
Shape sizes_of(const WindowDims& dims, std::size_t rank, const Shape& updates) {
  Shape sizes(rank, 1);
  const std::vector<std::size_t> axes = dims.window_axes(rank);
  for (std::size_t k = 0; k < axes.size(); ++k) {
    sizes[axes[k]] = updates[static_cast<std::size_t>(dims.offset_dims[k])];
  }
  return sizes;
}

/// ShapeError unless updates are windows of the tensor for the batch of the indices.
void check_updates(const InferContext& context, const WindowDims& dims) {
  const Shape& tensor = context.type(0).shape;
  const Shape& updates = context.type(kUpdates).shape;
  const Shape& indices = context.type(kCorners).shape;
  Shape batch;
  for (std::size_t d = 0; d < updates.size(); ++d) {
    if (!names_axis(dims.offset_dims, static_cast<std::int64_t>(d))) batch.push_back(updates[d]);
  }
  const Shape sizes = sizes_of(dims, tensor.size(), updates);
  bool fits = batch == Shape(indices.begin(), indices.end() - 1);
  for (std::size_t d = 0; d < tensor.size() && fits; ++d) fits = sizes[d] <= tensor[d];
  if (fits) return;
  raise<ShapeError>(
      "{}: updates do not match, got {} for {} and indices {}, expected the batch of the "
      "indices and windows of at most its shape",
      context.name(), describe(context, kUpdates), describe(context, 0), describe(context, kCorners));
}

std::vector<OutputDef> infer_scatter_general(const InferContext& context) {
  require_equal_dtypes(context, 0, kUpdates);
  const WindowDims dims = checked_dims(context, context.type(kUpdates).shape.size());
  check_updates(context, dims);
  const WindowReduction reduction = context.get(kWindowReduction);
  const bool adds = reduction == WindowReduction::kSum || reduction == WindowReduction::kMul;
  if (adds && context.type(0).dtype == DType::kBool) {
    raise<DTypeError>("{}: bool has no {}, got {}, expected reduction 'none', 'min' or 'max'", context.name(),
                      reduction == WindowReduction::kSum ? "sum" : "product", describe(context, 0));
  }
  return {{context.type(0), {}}};
}

BlockKernel eval_scatter_general(const EvalSpec& spec) {
  const WindowDims dims = dims_of(spec.op);
  const Shape& updates = spec.inputs[kUpdates]->shape;
  const Shape& tensor = spec.inputs[0]->shape;
  return scatter_windows(spec,
                         {.dims = dims,
                          .tensor = tensor,
                          .indices = spec.inputs[kCorners]->shape,
                          .windows = updates,
                          .sizes = sizes_of(dims, tensor.size(), updates),
                          .bounds = spec.op.get(kScatterMode)},
                         spec.op.get(kWindowReduction));
}

/// The windows of `from`; 0 where they are outside.
GradValue windows_of(Grad& g, const GradValue& from, bool last_only) {
  std::vector<NamedAttribute> attrs = same_dims(g);
  attrs.push_back(
      kSliceSizes(sizes_of(dims_of(g.op()), g.in_type(0).shape.size(), g.in_type(kUpdates).shape)));
  attrs.push_back(kGatherMode(g.get(kScatterMode)));
  attrs.push_back(kLastWindowOnly(last_only));
  return g.call("gather_general", {from, g.x(kCorners)}, std::move(attrs));
}

bool picks(const Grad& g) {
  const WindowReduction reduction = g.get(kWindowReduction);
  return reduction == WindowReduction::kMin || reduction == WindowReduction::kMax;
}

GradValue scattered_grad(Grad& g) {
  if (picks(g)) return g.call("equal_mask", {g.x(0), g.y()}) * g.dy();
  if (g.get(kWindowReduction) != WindowReduction::kLast) return g.dy();
  std::vector<NamedAttribute> attrs = same_dims(g);
  attrs.push_back(g.same(kScatterMode));
  attrs.push_back(kWindowReduction(WindowReduction::kLast));
  return g.call("scatter_general", {g.dy(), g.x(kCorners), g.zeros_like_input(kUpdates)}, std::move(attrs));
}

/// A least or greatest element that occurs several times receives the whole gradient each time.
GradValue updates_grad(Grad& g) {
  const GradValue dy = windows_of(g, g.dy(), g.get(kWindowReduction) == WindowReduction::kLast).now();
  if (!picks(g)) return dy;
  return g.call("equal_mask", {g.x(kUpdates), windows_of(g, g.y(), false)}) * dy;
}

std::vector<AttrDef> dims_attrs() {
  return {required(kOffsetDims), required(kIndexMap), optional(kCollapsedDims, Ints{}),
          optional(kOperandBatchingDims, Ints{}), optional(kIndicesBatchingDims, Ints{})};
}

}  // namespace

std::vector<OpDef> general_indexing_ops() {
  std::vector<AttrDef> of_gather = dims_attrs(), of_scatter = of_gather;
  of_gather.insert(of_gather.begin(), required(kSliceSizes));
  for (AttrDef& attr : std::vector<AttrDef>{optional(kGatherMode, WindowBounds::kClip),
                                            optional(kFillValue, 0.0), internal(kLastWindowOnly, false)}) {
    of_gather.push_back(std::move(attr));
  }
  of_scatter.push_back(optional(kWindowReduction, WindowReduction::kSum));
  of_scatter.push_back(optional(kScatterMode, WindowBounds::kFill));
  return {
      {.name = "gather_general",
       .inputs = {{"t", kNumbersAndBool}, {.name = "indices", .dtypes = kIntegers}},
       .attrs = std::move(of_gather),
       .infer = infer_gather_general,
       .kernel = {.eval = eval_gather_general},
       .grad = per_input({gather_general_grad})},
      {.name = "scatter_general",
       .inputs = {{"t", kNumbersAndBool},
                  {.name = "indices", .dtypes = kIntegers},
                  {"updates", kNumbersAndBool}},
       .attrs = std::move(of_scatter),
       .infer = infer_scatter_general,
       .kernel = {.eval = eval_scatter_general},
       .grad = {.inputs = {scattered_grad, nullptr, updates_grad},
                .refuses = [](const Op& op) { return op.get(kWindowReduction) == WindowReduction::kMul; }},
       .numerics = kRoundsOnce},
  };
}

}  // namespace popsr
