// gather_elements and scatter_elements: each index addresses one element of its own line along an axis.
//
// Indices below 0 count from the end; one outside the axis is an error when the program runs. Several
// elements at one position are reduced in ascending order along the axis; the last one stays when nothing is
// reduced.
#include <array>
#include <cstring>

#include "popsr/base/error.h"
#include "popsr/base/layout/loop_nest.h"
#include "popsr/exec/block_kernel.h"
#include "popsr/ops/attributes.h"
#include "popsr/ops/indexing/indexing_kernels.h"
#include "popsr/ops/infer.h"
#include "popsr/ops/loops/blocks.h"
#include "popsr/ops/loops/positions.h"
#include "popsr/ops/registry.h"

namespace popsr {
namespace {

constexpr Attr<bool> kLastElementOnly{"last_only"};
constexpr Choice<IndexReduction> kElementReductions[] = {{"sum", IndexReduction::kSum},
                                                         {"mul", IndexReduction::kMul},
                                                         {"min", IndexReduction::kMin},
                                                         {"max", IndexReduction::kMax},
                                                         {"none", IndexReduction::kLast}};
constexpr ChoiceAttr<IndexReduction> kElementReduction{"reduction", kElementReductions};

constexpr std::size_t kElements = 0, kElementIndices = 1, kElementUpdates = 2;  ///< Inputs.

std::size_t element_axis(const Op& op, const Shape& t) {
  return static_cast<std::size_t>(normalize_axis(op.def->name, op.get(kAxis), t.size()));
}

/// ShapeError unless the indices have the rank of the operand and lie in it beside the axis.
void check_element_indices(const InferContext& context) {
  const Shape& t = context.type(kElements).shape;
  const Shape& indices = context.type(kElementIndices).shape;
  const std::size_t axis = element_axis(context.op, t);
  bool fits = indices.size() == t.size();
  for (std::size_t d = 0; d < t.size() && fits; ++d) fits = d == axis || indices[d] <= t[d];
  if (fits) return;
  raise<ShapeError>(
      "{}: indices do not fit, got {} for {}, expected equal ranks and no greater extent but on axis {}",
      context.name(), describe(context, kElementIndices), describe(context, kElements), axis);
}

IndexedAxis element_lines(const Op& op, const Shape& t, const Shape& indices) {
  return {.loop = indices,
          .indexed = t,
          .index_strides = row_major_strides(indices),
          .axis = element_axis(op, t)};
}

// Gather

/// Rows of indices beside each other: element j of one reads element `start + index * stride + j * step`.
class ElementGather {
 public:
  explicit ElementGather(const EvalSpec& spec)
      : size_(static_cast<std::int64_t>(size_of(spec.outputs[0].dtype))),
        axis_(element_axis(spec.op, spec.inputs[kElements]->shape)),
        positions_(spec, kElementIndices, spec.inputs[kElements]->shape[axis_], {.from_end = true}) {
    const Shape& t = spec.inputs[kElements]->shape;
    const Shape& indices = spec.inputs[kElementIndices]->shape;
    const Shape strides = row_major_strides(t), own = row_major_strides(indices);
    stride_ = strides[axis_];
    std::size_t first = t.size() - 1;
    step_ = first == axis_ ? 0 : 1;
    while (first > axis_ + 1 && indices[first] == t[first]) --first;
    count_ = num_elements(Shape(indices.begin() + static_cast<std::ptrdiff_t>(first), indices.end()));
    for (std::size_t d = first; d-- > 0;) {
      starts_.add_outer(indices[d], std::array{d == axis_ ? std::int64_t{0} : strides[d]});
    }
    rows_ = count_ > 0 ? num_elements(indices) / count_ : 0;
  }

  void operator()(const BlockRun& run) const {
    const Positions::Loaded positions = positions_.load(run);
    if (rows_ == 0) return;
    for_each_range(run, {.units = rows_, .work = rows_ * count_},
                   [&](const Block& block, std::int64_t begin, std::int64_t end) {
                     rows(block, positions.of(block), begin, end);
                   });
  }

 private:
  void rows(const Block& block, const std::int64_t* indices, std::int64_t begin, std::int64_t end) const {
    switch (size_) {
      case 1:
        return typed_rows<std::uint8_t>(block, indices, begin, end);
      case 2:
        return typed_rows<std::uint16_t>(block, indices, begin, end);
      case 4:
        return typed_rows<std::uint32_t>(block, indices, begin, end);
      default:
        return typed_rows<std::uint64_t>(block, indices, begin, end);
    }
  }

  template <class T>
  void typed_rows(const Block& block, const std::int64_t* indices, std::int64_t begin,
                  std::int64_t end) const {
    for (std::int64_t row = begin; row < end; ++row) {
      const T* const from =
          reinterpret_cast<const T*>(block.in(kElements)) + NestPosition(starts_, row).offset(0);
      T* const to = reinterpret_cast<T*>(block.out()) + row * count_;
      const std::int64_t* const index = indices + row * count_;
      if (stride_ == 1 && step_ == 0) {
        for (std::int64_t j = 0; j < count_; ++j) to[j] = from[index[j]];
      } else {
        for (std::int64_t j = 0; j < count_; ++j) to[j] = from[index[j] * stride_ + j * step_];
      }
    }
  }

  std::int64_t size_;
  std::size_t axis_;
  Positions positions_;
  std::int64_t stride_ = 1, step_ = 0, count_ = 1, rows_ = 0;
  LoopNest starts_{1};
};

std::vector<OutputDef> infer_gather_elements(const InferContext& context) {
  check_element_indices(context);
  return {{{context.type(kElements).dtype, context.type(kElementIndices).shape}, {}}};
}

BlockKernel eval_gather_elements(const EvalSpec& spec) {
  if (!spec.op.get(kLastElementOnly)) return ElementGather(spec);
  return take_kernel(
      spec, element_lines(spec.op, spec.inputs[kElements]->shape, spec.inputs[kElementIndices]->shape),
      {.last_only = true, .from_end = true});
}

GradValue gather_elements_grad(Grad& g) {
  return g.call("scatter_elements", {g.zeros_like_input(kElements), g.x(kElementIndices), g.dy()},
                {g.same(kAxis), kElementReduction(IndexReduction::kSum)});
}

// Scatter

std::vector<OutputDef> infer_scatter_elements(const InferContext& context) {
  require_equal_dtypes(context, kElements, kElementUpdates);
  require_equal_shapes(context, kElementIndices, kElementUpdates);
  check_element_indices(context);
  return {{context.type(kElements), {}}};
}

BlockKernel eval_scatter_elements(const EvalSpec& spec) {
  return scatter_kernel(
      spec, element_lines(spec.op, spec.inputs[kElements]->shape, spec.inputs[kElementIndices]->shape),
      {.reduction = spec.op.get(kElementReduction),
       .values = kElementUpdates,
       .initial = kElements,
       .from_end = true});
}

GradValue gathered_elements(Grad& g, const GradValue& from, bool last_only) {
  return g.call("gather_elements", {from, g.x(kElementIndices)},
                {g.same(kAxis), kLastElementOnly(last_only)});
}

bool picks_elements(const Grad& g) {
  const IndexReduction reduction = g.get(kElementReduction);
  return reduction == IndexReduction::kMin || reduction == IndexReduction::kMax;
}

GradValue scattered_elements_grad(Grad& g) {
  if (picks_elements(g)) return g.call("equal_mask", {g.x(kElements), g.y()}) * g.dy();
  if (g.get(kElementReduction) != IndexReduction::kLast) return g.dy();
  return g.call("scatter_elements", {g.dy(), g.x(kElementIndices), g.zeros_like_input(kElementUpdates)},
                {g.same(kAxis), g.same(kElementReduction)});
}

/// A least or greatest element that occurs several times receives the whole gradient each time.
GradValue update_elements_grad(Grad& g) {
  const GradValue dy = gathered_elements(g, g.dy(), g.get(kElementReduction) == IndexReduction::kLast).now();
  if (!picks_elements(g)) return dy;
  return g.call("equal_mask", {g.x(kElementUpdates), gathered_elements(g, g.y(), false)}) * dy;
}

}  // namespace

std::vector<OpDef> element_indexing_ops() {
  return {
      {.name = "gather_elements",
       .inputs = {{"t"}, {.name = "indices", .dtypes = kIntegers}},
       .attrs = {optional(kAxis, 0), internal(kLastElementOnly, false)},
       .infer = infer_gather_elements,
       .kernel = {.eval = eval_gather_elements},
       .grad = per_input({gather_elements_grad})},
      {.name = "scatter_elements",
       .inputs = {{"t", kNumbers}, {.name = "indices", .dtypes = kIntegers}, {"updates", kNumbers}},
       .attrs = {optional(kAxis, 0), optional(kElementReduction, IndexReduction::kLast)},
       .infer = infer_scatter_elements,
       .kernel = {.eval = eval_scatter_elements},
       .grad = {.inputs = {scattered_elements_grad, nullptr, update_elements_grad},
                .refuses = [](const Op& op) { return op.get(kElementReduction) == IndexReduction::kMul; }},
       .numerics = kRoundsOnce},
  };
}

}  // namespace popsr
