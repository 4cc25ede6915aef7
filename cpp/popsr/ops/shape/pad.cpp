// Pad: a value around the elements of a tensor and between them; negative numbers cut elements off.
#include <algorithm>
#include <array>
#include <cstring>

#include "popsr/base/error.h"
#include "popsr/base/layout/loop_nest.h"
#include "popsr/exec/block_kernel.h"
#include "popsr/ops/attributes.h"
#include "popsr/ops/infer.h"
#include "popsr/ops/loops/blocks.h"
#include "popsr/ops/registry.h"

namespace popsr {
namespace {

using Ints = std::vector<std::int64_t>;

constexpr Attr<Ints> kPadLow{"low"};
constexpr Attr<Ints> kPadHigh{"high"};
constexpr Attr<Ints> kInterior{"interior"};

constexpr std::int64_t kMostPadding = std::int64_t{1} << 40;

Ints interior_of(const Op& op, std::size_t rank) { return op.find(kInterior).value_or(Ints(rank, 0)); }

Shape padded_shape(const Op& op, const Shape& shape) {
  const Ints low = op.get(kPadLow), high = op.get(kPadHigh), interior = interior_of(op, shape.size());
  Shape result;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    const std::int64_t between = std::max<std::int64_t>(shape[d] - 1, 0) * interior[d];
    result.push_back(low[d] + shape[d] + between + high[d]);
  }
  return result;
}

void check_padding(const InferContext& context, std::size_t rank) {
  const Ints low = context.get(kPadLow), high = context.get(kPadHigh),
             interior = interior_of(context.op, rank);
  for (const Ints& list : {low, high, interior}) {
    if (list.size() == rank) continue;
    raise<AttributeValueError>(
        "{}: low, high or interior has a wrong length, got {} for {}, expected {} numbers", context.name(),
        to_string(list), describe(context, 0), rank);
  }
  const auto large = [](std::int64_t n) { return n > kMostPadding || n < -kMostPadding; };
  for (std::size_t d = 0; d < rank; ++d) {
    if (interior[d] >= 0 && !large(low[d]) && !large(high[d]) && !large(interior[d])) continue;
    raise<AttributeValueError>(
        "{}: padding is out of range, got low {}, high {} and interior {}, expected "
        "interior >= 0 and magnitudes of at most 2^40",
        context.name(), low[d], high[d], interior[d]);
  }
}

std::vector<OutputDef> infer_pad(const InferContext& context) {
  const TensorType& t = context.type(0);
  require_equal_dtypes(context, 0, 1);
  if (!context.type(1).shape.empty()) {
    raise<ShapeError>("{}: value is not a scalar, got {}, expected one element", context.name(),
                      describe(context, 1));
  }
  check_padding(context, t.shape.size());
  Shape shape = padded_shape(context.op, t.shape);
  if (std::ranges::any_of(shape, [](std::int64_t extent) { return extent < 0; })) {
    raise<ShapeError>("{}: more is cut off than there is, got {} of {}, expected extents >= 0",
                      context.name(), to_string(shape), describe(context, 0));
  }
  return {{{t.dtype, std::move(shape)}, {}}};
}

/// The elements that are kept, on both sides, in bytes.
struct Kept {
  LoopNest nest;  ///< Arrays: the tensor, the padded one.
  std::int64_t elements = 1, from = 0, to = 0;
};

Kept kept_of(const Op& op, const Shape& shape, std::int64_t size) {
  const Shape padded = padded_shape(op, shape);
  const Ints low = op.get(kPadLow), interior = interior_of(op, shape.size());
  Shape strides = row_major_strides(shape), spread = row_major_strides(padded), extents;
  Kept kept{.nest = LoopNest(2)};
  for (std::size_t d = 0; d < shape.size(); ++d) {
    const std::int64_t step = interior[d] + 1;
    // Element i goes to low + i * step, from 0 to the padded extent - 1.
    const std::int64_t first = low[d] >= 0 ? 0 : (-low[d] + step - 1) / step;
    const std::int64_t room = padded[d] - 1 - low[d];
    const std::int64_t end = room < 0 ? 0 : std::min(shape[d], room / step + 1);
    extents.push_back(std::max<std::int64_t>(end - first, 0));
    kept.elements *= extents[d];
    kept.from += first * strides[d] * size;
    kept.to += (low[d] + first * step) * spread[d] * size;
    strides[d] *= size;
    spread[d] *= step * size;
  }
  const std::array<Shape, 2> both = {std::move(strides), std::move(spread)};
  kept.nest = LoopNest(extents, both);
  return kept;
}

BlockKernel eval_pad(const EvalSpec& spec) {
  const auto size = static_cast<std::int64_t>(size_of(spec.outputs[0].dtype));
  const std::int64_t elements = num_elements(spec.outputs[0].shape);
  const std::array<Shape, 2> strides = {Shape{0}, Shape{size}};
  return [kept = kept_of(spec.op, spec.inputs[0]->shape, size), fill = LoopNest({elements}, strides),
          elements, size](const BlockRun& run) {
    if (elements == 0) return;
    share_blocks(run, elements, [&](const Block& block) {
      copy_range(fill, block.out(), 1, block.in(1), 0, size, 0, elements);
      if (kept.elements == 0) return;
      copy_range(kept.nest, block.out() + kept.to, 1, block.in(0) + kept.from, 0, size, 0, kept.elements);
    });
  };
}

/// Gradient of the elements: the gradient of their copies, 0 where they were cut off.
GradValue pad_grad(Grad& g) {
  return g.call("pad_grad", {g.dy()},
                {kShape(g.in_type(0).shape), g.same(kPadLow), g.same(kPadHigh), g.same(kInterior)});
}

/// The sum of the gradient at the places of the value.
GradValue pad_value_grad(Grad& g) {
  const DType dtype = g.in_type(1).dtype;
  const GradValue mask = g.call("pad", {g.zeros_like_input(0), g.constant(1, dtype)},
                                {g.same(kPadLow), g.same(kPadHigh), g.same(kInterior)});
  return g.sum_to_input(1, g.dy() * mask);
}

BlockKernel eval_pad_grad(const EvalSpec& spec) {
  const auto size = static_cast<std::int64_t>(size_of(spec.outputs[0].dtype));
  const Shape& shape = spec.outputs[0].shape;
  return [kept = kept_of(spec.op, shape, size), elements = num_elements(shape), size](const BlockRun& run) {
    if (elements == 0) return;
    share_blocks(run, elements, [&](const Block& block) {
      std::memset(block.out(), 0, static_cast<std::size_t>(elements * size));
      if (kept.elements == 0) return;
      copy_range(kept.nest, block.out() + kept.from, 0, block.in(0) + kept.to, 1, size, 0, kept.elements);
    });
  };
}

}  // namespace

std::vector<OpDef> pad_ops() {
  return {
      {.name = "pad",
       .inputs = {{"t"}, {"value"}},
       .attrs = {required(kPadLow), required(kPadHigh), optional(kInterior)},
       .infer = infer_pad,
       .kernel = {.eval = eval_pad},
       .grad = per_input({pad_grad, pad_value_grad}),
       .numerics = {.linear = Linear::kAll}},
      {.name = "pad_grad",
       .inputs = {{"dy"}},
       .attrs = {required(kShape), required(kPadLow), required(kPadHigh), optional(kInterior)},
       .infer = of_given_shape,
       .kernel = {.eval = eval_pad_grad},
       .program = {.internal = true}},
  };
}

}  // namespace popsr
