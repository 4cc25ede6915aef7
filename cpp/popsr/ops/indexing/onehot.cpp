// Classes and counts: onehot, histogram.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <utility>

#include "popsr/base/error.h"
#include "popsr/exec/block_kernel.h"
#include "popsr/exec/invalid_labels.h"
#include "popsr/ops/attributes.h"
#include "popsr/ops/infer.h"
#include "popsr/ops/loops/blocks.h"
#include "popsr/ops/loops/tiles.h"
#include "popsr/ops/registry.h"

namespace popsr {
namespace {

using kernels::Compute;

constexpr std::size_t kClass = 0, kNumClasses = 1, kOffOn = 2;
constexpr Attr<bool> kAbsolute{"absolute_of_input"};

// Onehot: element (p, c, q) = values[t(p, q) == c]. An index that is not a class makes no element "on".

std::size_t class_axis(const Op& op, std::size_t rank) {
  return static_cast<std::size_t>(normalize_axis(op.def->name, op.get(kAxis), rank));
}

std::int64_t num_classes(const InferContext& context) {
  const Tensor& tensor = context.tensor(kNumClasses);
  require_one_element(context, kNumClasses);
  if (tensor.kind != TensorKind::kConstant) {
    raise<GraphError>("{}: num_classes is not constant, got '{}', expected a constant", context.name(),
                      tensor.name);
  }
  const std::int64_t classes = read_integer(tensor.state.data->data(), tensor.type.dtype);
  if (classes < 1) {
    raise<AttributeValueError>("{}: num_classes is not positive, got {}, expected 1 or more", context.name(),
                               classes);
  }
  return classes;
}

std::vector<OutputDef> infer_onehot(const InferContext& context) {
  const TensorType& values = context.type(kOffOn);
  if (values.shape != Shape{2}) {
    raise<ShapeError>("{}: values are not off and on, got {}, expected shape [2]", context.name(),
                      describe(context, kOffOn));
  }
  const std::int64_t classes = num_classes(context);
  Shape shape = context.type(kClass).shape;
  const std::size_t axis = class_axis(context.op, shape.size() + 1);
  shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(axis), classes);
  return {{{values.dtype, std::move(shape)}, {}}};
}

/// The output as (before the classes, classes, after them).
struct Classes {
  std::int64_t before = 1, count = 0, after = 1;

  std::int64_t indices() const { return before * after; }
  std::int64_t elements() const { return indices() * count; }
};

Classes classes_of(const Op& op, const Shape& shape) {
  const std::size_t axis = class_axis(op, shape.size());
  const auto at = shape.begin() + static_cast<std::ptrdiff_t>(axis);
  return {num_elements(Shape(shape.begin(), at)), *at, num_elements(Shape(at + 1, shape.end()))};
}

/// Calls visit(position) for the elements that are "on", in the order of the indices, and outside(i, index)
/// for an index that is not one of the classes.
template <class Visit, class Outside>
void for_each_on(const Classes& classes, DType dtype, const std::byte* indices, const Visit& visit,
                 const Outside& outside) {
  const std::size_t size = size_of(dtype);
  for (std::int64_t i = 0; i < classes.indices(); ++i) {
    const std::int64_t c = read_integer(indices + static_cast<std::size_t>(i) * size, dtype);
    if (c < 0 || c >= classes.count) {
      outside(i, c);
      continue;
    }
    visit((i / classes.after * classes.count + c) * classes.after + i % classes.after);
  }
}

BlockKernel eval_onehot(const EvalSpec& spec) {
  const auto size = static_cast<std::int64_t>(size_of(spec.outputs[0].dtype));
  return [classes = classes_of(spec.op, spec.outputs[0].shape), dtype = spec.inputs[0]->dtype,
          size](const BlockRun& run) {
    const auto bytes = static_cast<std::size_t>(size);
    for_each_block(run, [&](const Block& block) {
      const std::byte* const off = block.in(kOffOn);
      std::byte* const out = block.out();
      for (std::int64_t i = 0; i < classes.elements(); ++i) std::memcpy(out + i * size, off, bytes);
      InvalidLabels* const invalid_labels = block.run().invalid_labels;
      bool is_reported = invalid_labels == nullptr;
      for_each_on(
          classes, dtype, block.in(0),
          [&](std::int64_t at) { std::memcpy(out + at * size, off + size, bytes); },
          [&](std::int64_t i, std::int64_t index) {
            if (!std::exchange(is_reported, true))
              invalid_labels->add(block.index(), i, index, classes.count);
          });
    });
  };
}

GradValue values_grad(Grad& g) { return g.call("onehot_grad", {g.dy(), g.x(kClass)}, {g.same(kAxis)}); }

std::vector<OutputDef> infer_onehot_grad(const InferContext& context) {
  return {{{context.type(0).dtype, {2}}, {}}};
}

/// The sums of dy where the element is off and where it is on, in float64 and ascending order.
BlockKernel eval_onehot_grad(const EvalSpec& spec) {
  const DType dtype = spec.outputs[0].dtype;
  return [&table = spec.kernels, classes = classes_of(spec.op, spec.inputs[0]->shape),
          index = spec.inputs[1]->dtype, dtype,
          stochastic = spec.stochastic && is_narrow_float(dtype)](const BlockRun& run) {
    const std::size_t size = size_of(dtype);
    for_each_block(run, [&](const Block& block) {
      const std::byte* const dy = block.in(0);
      std::vector<bool> on(static_cast<std::size_t>(classes.elements()));
      for_each_on(
          classes, index, block.in(1), [&](std::int64_t at) { on[static_cast<std::size_t>(at)] = true; },
          [](std::int64_t, std::int64_t) {});
      std::array<double, 2> sums = {};
      for (std::size_t i = 0; i < on.size(); ++i)
        sums[on[i] ? 1 : 0] += read_scalar(table, dtype, dy + i * size);
      store_tile(table, Compute::kF64, dtype, block.out(), sums.data(), nullptr, 2, block.key(stochastic), 0);
    });
  };
}

// Histogram: bin i counts levels[i-1] <= x < levels[i]; NaN counts as above all levels.

std::vector<OutputDef> infer_histogram(const InferContext& context) {
  const Shape& levels = context.type(1).shape;
  if (levels.size() != 1) {
    raise<ShapeError>("{}: levels are not a list, got {}, expected one dimension", context.name(),
                      describe(context, 1));
  }
  return {{{DType::kUInt32, {levels[0] + 1}}, {}}};
}

BlockKernel eval_histogram(const EvalSpec& spec) {
  const TensorType& t = *spec.inputs[0];
  const TensorType& levels = *spec.inputs[1];
  const auto bins = static_cast<std::size_t>(num_elements(levels.shape)) + 1;
  return [&table = spec.kernels, dtype = t.dtype, level_dtype = levels.dtype, bins,
          elements = num_elements(t.shape), absolute = spec.op.get(kAbsolute)](const BlockRun& run) {
    alignas(64) std::array<double, kTile> tile;
    std::vector<double> bounds(bins - 1);
    std::vector<std::uint32_t> counts(bins);
    for_each_block(run, [&](const Block& block) {
      load_tile(table, level_dtype, Compute::kF64, bounds.data(), block.in(1),
                static_cast<std::int64_t>(bounds.size()));
      std::ranges::fill(counts, 0U);
      for (std::int64_t first = 0; first < elements; first += kTile) {
        const std::int64_t n = std::min(kTile, elements - first);
        const std::byte* const from = block.in(0) + first * static_cast<std::int64_t>(size_of(dtype));
        load_tile(table, dtype, Compute::kF64, tile.data(), from, n);
        for (std::int64_t i = 0; i < n; ++i) {
          const double x = tile[static_cast<std::size_t>(i)];
          const auto bin = std::ranges::upper_bound(bounds, absolute ? std::fabs(x) : x);
          ++counts[static_cast<std::size_t>(bin - bounds.begin())];
        }
      }
      std::memcpy(block.out(), counts.data(), bins * sizeof(counts[0]));
    });
  };
}

}  // namespace

std::vector<OpDef> onehot_ops() {
  const AttrDef axis = required(kAxis);
  return {
      {.name = "onehot",
       .inputs = {{"t", kIntegers}, {"num_classes", kIntegers}, {"values"}},
       .attrs = {axis},
       .infer = infer_onehot,
       .kernel = {.eval = eval_onehot},
       .grad = per_input({nullptr, nullptr, values_grad}),
       .numerics = {.labels = kClass}},
      {.name = "onehot_grad",
       .inputs = {{"dy", kFloating}, {"t", kIntegers}},
       .attrs = {axis},
       .infer = infer_onehot_grad,
       .kernel = {.eval = eval_onehot_grad},
       .numerics = kRoundsOnce,
       .program = {.internal = true}},
      {.name = "histogram",
       .inputs = {{"t", kFloating}, {"levels", kFloating}},
       .attrs = {required(kAbsolute)},
       .infer = infer_histogram,
       .kernel = {.eval = eval_histogram}},
  };
}

}  // namespace popsr
