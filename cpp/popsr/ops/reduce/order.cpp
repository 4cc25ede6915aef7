// Ops that find elements by their order: argmax, argmin, median, topk, and the gradients of the last two.
//
// Of equal elements the first comes first, and -0 equals +0. argmax and argmin find the first NaN where there
// is one, and so does median; topk takes NaN for the largest number.
#include <algorithm>
#include <limits>

#include "popsr/base/error.h"
#include "popsr/base/layout/shape.h"
#include "popsr/exec/block_kernel.h"
#include "popsr/ops/attributes.h"
#include "popsr/ops/infer.h"
#include "popsr/ops/loops/column_walk.h"
#include "popsr/ops/loops/row_walk.h"
#include "popsr/ops/loops/tiles.h"
#include "popsr/ops/reduce/axes.h"
#include "popsr/ops/reduce/ordered_words.h"
#include "popsr/ops/registry.h"

namespace popsr {

namespace {

using Ints = std::vector<std::int64_t>;
using kernels::Compute;

constexpr Attr<bool> kKeepDim{"keepdim"};
constexpr Attr<std::int64_t> kK{"k"};
constexpr Attr<bool> kLargest{"largest"};
constexpr Attr<std::int64_t> kExtent{"extent"};

template <class T>
bool is_nan(T x) {
  return x != x;
}

template <class T>
std::int64_t first_nan(const T* x, std::int64_t n) {
  return std::find_if(x, x + n, is_nan<T>) - x;
}

template <class T>
bool has_nan(const T* x, std::int64_t n) {
  int found = 0;
  for (std::int64_t i = 0; i < n; ++i) found |= static_cast<int>(is_nan(x[i]));
  return found != 0;
}

/// Index of the lower median: position (n - 1) / 2 of the ascending order.
template <class T>
std::int64_t median_index(const T* x, const RowArgs& args, std::int64_t n) {
  if (has_nan(x, n)) return first_nan(x, n);
  auto* const words = reinterpret_cast<OrderedWord<T>*>(args.room);
  WordsOfRow<T>(x, false).write(words, n);
  auto* const middle = words + (n - 1) / 2;
  std::nth_element(words, middle, words + n);
  return index_of(*middle);
}

/// words[0 .. k) = the first k of n words, in order; `words` is room for 2n.
template <class T>
void sort_first(const kernels::KernelTable& kernels, OrderedWord<T>* words, const WordsOfRow<T>& row,
                std::int64_t k, std::int64_t n) {
  if (k > 0 && k <= 16) return select_words(words, row, k, n);
  row.write(words, n);
  if (k * 4 < n) return std::partial_sort(words, words + k, words + n);
  sort_words<T>(kernels, words, words + n, n);
}

/// Calls body(row of input 0, args, n), typed, for every row of `axes` of input 0. `words`: args.room is for
/// the words of n elements, twice.
template <class Body>
BlockKernel typed_rows(const EvalSpec& spec, Ints axes, Body body, bool words = false) {
  const TensorType& type = *spec.inputs[0];
  const std::int64_t n = reduced_count(type.shape, axes);
  return with_compute_type(compute_of(type.dtype), [&]<class T>(T*) {
    return row_kernel(
        spec, std::move(axes),
        [body, n](const RowArgs& args) { body(reinterpret_cast<const T*>(args.in[0]), args, n); },
        words ? ordered_bytes<T>(n) : 0);
  });
}

template <class T>
T* row_of(std::byte* row, const T*) {
  return reinterpret_cast<T*>(row);
}

// Argmax, argmin

Ints axis_of(const Op& op, const Attr<std::int64_t>& attr, std::size_t rank) {
  return {normalize_axis(op.def->name, op.get(attr), rank)};
}

/// ShapeError unless int32 can number the elements of a row.
void require_numbered(const InferContext& context, std::int64_t extent) {
  if (extent > std::numeric_limits<std::int32_t>::max()) {
    raise<ShapeError>("{}: too many elements to number with int32, got {}, expected an extent < 2^31",
                      context.name(), describe(context, 0));
  }
}

std::vector<OutputDef> infer_arg(const InferContext& context) {
  const Shape& shape = context.type(0).shape;
  const Ints axes = axis_of(context.op, kDim, shape.size());
  const std::int64_t extent = reduced_count(shape, axes);
  if (extent == 0) {
    raise<ShapeError>("{}: there is no {} of no elements, got {}, expected an extent > 0", context.name(),
                      context.name() == "argmax" ? "largest" : "smallest", describe(context, 0));
  }
  require_numbered(context, extent);
  return {{{DType::kInt32, reduced_shape(shape, axes, context.get(kKeepDim))}}};
}

/// Along an axis that is not the last: the extremes so far of a tile of columns and their indices.
BlockKernel arg_columns(const EvalSpec& spec, const AxisExtents& of, bool largest) {
  const DType dtype = spec.inputs[0]->dtype;
  const Compute compute = compute_of(dtype);
  const kernels::ColumnKernels& columns =
      *(compute == Compute::kF64 ? spec.kernels.columns_f64 : spec.kernels.columns_f32);
  return [&kernels = spec.kernels, step = largest ? columns.argmax : columns.argmin, of, dtype,
          compute](const BlockRun& run) {
    const auto size = static_cast<std::int64_t>(size_of(dtype));
    for_each_columns(
        run, of, [&](const Block& block, std::int64_t o, std::int64_t column, std::int64_t count) {
          auto* const best = static_cast<std::byte*>(thread_scratch(2 * kTile * sizeof(double)));
          std::byte* const wide = best + kTile * sizeof(double);
          auto* const index = reinterpret_cast<std::int32_t*>(block.out()) + o * of.inner + column;
          const std::byte* const from = block.in(0) + (o * of.n * of.inner + column) * size;
          load_tile(kernels, dtype, compute, best, from, count);
          std::fill_n(index, count, 0);
          if (!is_narrow_float(dtype)) {
            return step(best, index, from + of.inner * size, of.n - 1, count, of.inner, 1);
          }
          for (std::int64_t i = 1; i < of.n; ++i) {
            load_tile(kernels, dtype, compute, wide, from + i * of.inner * size, count);
            step(best, index, wide, 1, count, count, static_cast<std::int32_t>(i));
          }
        });
  };
}

template <bool largest>
BlockKernel eval_arg(const EvalSpec& spec) {
  const Shape& shape = spec.inputs[0]->shape;
  const AxisExtents extents(shape, axis_of(spec.op, kDim, shape.size())[0]);
  if (is_float(spec.inputs[0]->dtype) && extents.inner > 1) return arg_columns(spec, extents, largest);
  const auto compute = static_cast<std::size_t>(compute_of(spec.inputs[0]->dtype));
  const auto extreme = largest ? kernels::Reduce::kMax : kernels::Reduce::kMin;
  const kernels::ReduceFn reduce = spec.kernels.reduce[static_cast<std::size_t>(extreme)][compute];
  return typed_rows(spec, axis_of(spec.op, kDim, spec.inputs[0]->shape.size()),
                    [reduce]<class T>(const T* x, const RowArgs& args, std::int64_t n) {
                      T best;
                      reduce(&best, nullptr, x, 1, n, n);
                      const std::int64_t index =
                          is_nan(best) ? first_nan(x, n) : std::find(x, x + n, best) - x;
                      *reinterpret_cast<std::int32_t*>(args.out[0]) = static_cast<std::int32_t>(index);
                    });
}

OpDef arg_op(std::string_view name, EvalFn eval) {
  return {.name = name,
          .inputs = {{"t", kNumbers}},
          .attrs = {optional(kDim, 0), optional(kKeepDim, false)},
          .infer = infer_arg,
          .kernel = {.eval = eval}};
}

// Median

std::vector<OutputDef> infer_median(const InferContext& context) {
  std::vector<OutputDef> outputs = infer_selection(context);
  const Shape& shape = context.type(0).shape;
  require_numbered(context, reduced_count(shape, reduced_axes(context.op, shape.size())));
  return outputs;
}

BlockKernel eval_median(const EvalSpec& spec) {
  return typed_rows(
      spec, reduced_axes(spec.op, spec.inputs[0]->shape.size()),
      []<class T>(const T* x, const RowArgs& args, std::int64_t n) {
        *row_of(args.out[0], x) = x[median_index(x, args, n)];
      },
      true);
}

/// dy at the element that is the median, 0 elsewhere.
BlockKernel eval_median_grad(const EvalSpec& spec) {
  return typed_rows(
      spec, reduced_axes(spec.op, spec.inputs[0]->shape.size()),
      []<class T>(const T* x, const RowArgs& args, std::int64_t n) {
        T* const dx = row_of(args.out[0], x);
        std::fill_n(dx, n, T{0});
        dx[median_index(x, args, n)] = *reinterpret_cast<const T*>(args.in[1]);
      },
      true);
}

GradValue median_grad(Grad& g) {
  Ints axes = reduced_axes(g.op(), g.in_type(0).shape.size());
  return g.call("median_grad", {g.x(), with_reduced_axes(g, g.dy())}, {kAxes(std::move(axes))});
}

// Topk

std::vector<OutputDef> infer_topk(const InferContext& context) {
  TensorType type = context.type(0);
  const auto axis = static_cast<std::size_t>(axis_of(context.op, kAxis, type.shape.size())[0]);
  const auto k = context.get(kK);
  if (k < 0 || k > type.shape[axis]) {
    raise<AttributeValueError>("{}: k out of range, got {} of {}, expected 0 <= k <= {}", context.name(), k,
                               describe(context, 0), type.shape[axis]);
  }
  require_numbered(context, type.shape[axis]);
  type.shape[axis] = k;
  return {{type}, {{DType::kInt32, type.shape}}};
}

BlockKernel eval_topk(const EvalSpec& spec) {
  const auto k = spec.op.get(kK);
  const bool largest = spec.op.get(kLargest);
  return typed_rows(
      spec, axis_of(spec.op, kAxis, spec.inputs[0]->shape.size()),
      [&kernels = spec.kernels, k, largest]<class T>(const T* x, const RowArgs& args, std::int64_t n) {
        auto* const words = reinterpret_cast<OrderedWord<T>*>(args.room);
        auto* const indices = reinterpret_cast<std::int32_t*>(args.out[1]);
        sort_first(kernels, words, WordsOfRow<T>(x, largest), k, n);
        std::transform(words, words + k, indices, index_of<OrderedWord<T>>);
        std::transform(indices, indices + k, row_of(args.out[0], x), [x](std::int32_t i) { return x[i]; });
      },
      true);
}

std::vector<OutputDef> infer_topk_grad(const InferContext& context) {
  TensorType type = context.type(0);
  const auto axis = static_cast<std::size_t>(axis_of(context.op, kAxis, type.shape.size())[0]);
  type.shape[axis] = context.get(kExtent);
  return {{type}};
}

/// dy at the elements that were taken, 0 elsewhere.
BlockKernel eval_topk_grad(const EvalSpec& spec) {
  const auto extent = spec.op.get(kExtent);
  return typed_rows(spec, axis_of(spec.op, kAxis, spec.inputs[0]->shape.size()),
                    [extent]<class T>(const T* dy, const RowArgs& args, std::int64_t k) {
                      const auto* const taken = reinterpret_cast<const std::int32_t*>(args.in[1]);
                      T* const dx = row_of(args.out[0], dy);
                      std::fill_n(dx, extent, T{0});
                      for (std::int64_t i = 0; i < k; ++i) dx[taken[i]] = dy[i];
                    });
}

GradValue topk_grad(Grad& g) {
  if (!g.dy()) return {};
  const Shape& shape = g.in_type(0).shape;
  const std::int64_t axis = axis_of(g.op(), kAxis, shape.size())[0];
  return g.call("topk_grad", {g.dy(), g.y(1)}, {kAxis(axis), kExtent(shape[static_cast<std::size_t>(axis)])});
}

}  // namespace

std::vector<OpDef> order_ops() {
  return {
      arg_op("argmax", eval_arg<true>),
      arg_op("argmin", eval_arg<false>),
      {.name = "median",
       .inputs = {{"t", kNumbers}},
       .attrs = {optional(kAxes), optional(kKeepDims, false)},
       .infer = infer_median,
       .kernel = {.eval = eval_median},
       .grad = per_input({median_grad})},
      {.name = "median_grad",
       .inputs = {{"t", kFloating}, {"dy", kFloating}},
       .attrs = {optional(kAxes)},
       .infer =
           [](const InferContext& context) {
             return std::vector<OutputDef>{{context.type(0), {}}};
           },
       .kernel = {.eval = eval_median_grad},
       .program = {.internal = true}},
      {.name = "topk",
       .inputs = {{"t", kNumbers}},
       .attrs = {required(kK), required(kAxis), required(kLargest), optional(kAvailableMemoryProportion)},
       .infer = infer_topk,
       .kernel = {.eval = eval_topk},
       .grad = per_input({topk_grad})},
      {.name = "topk_grad",
       .inputs = {{"dy", kFloating}, {"indices", kAnyDType}},
       .attrs = {required(kAxis), required(kExtent)},
       .infer = infer_topk_grad,
       .kernel = {.eval = eval_topk_grad},
       .program = {.internal = true}},
  };
}

}  // namespace popsr
