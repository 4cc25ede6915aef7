// Sums, products and extremes of what comes before, and products of what comes before and after.
#include <array>

#include "popsr/base/layout/shape.h"
#include "popsr/exec/block_kernel.h"
#include "popsr/ops/attributes.h"
#include "popsr/ops/flops.h"
#include "popsr/ops/infer.h"
#include "popsr/ops/loops/axis_rows.h"
#include "popsr/ops/loops/column_walk.h"
#include "popsr/ops/loops/row_walk.h"
#include "popsr/ops/loops/tiles.h"
#include "popsr/ops/reduce/axes.h"
#include "popsr/ops/registry.h"

namespace popsr {

namespace {

using kernels::Compute;
using kernels::KernelTable;

constexpr Attr<bool> kReverse{"reverse"};
constexpr Attr<bool> kOfLargest{"largest"};

/// The residual of a + b.
template <class T>
T residual_of_sum(T sum, T a, T b) {
  const T part = sum - a;
  const T rest = (a - (sum - part)) + (b - part);
  return rest == rest ? rest : T{0};  // Infinities leave nothing.
}

/// One chain of additions in ascending, or descending, order; integers wrap.
template <class T, bool reverse>
void prefix_sums(std::byte* out, float* lo, const std::byte* in, std::int64_t n) {
  const auto* const x = reinterpret_cast<const T*>(in);
  auto* const y = reinterpret_cast<T*>(out);
  T sum = 0;
  for (std::int64_t k = 0; k < n; ++k) {
    const std::int64_t i = reverse ? n - 1 - k : k;
    if constexpr (std::is_floating_point_v<T>) {
      const T before = sum;
      sum = k == 0 ? x[i] : before + x[i];
      if (lo != nullptr) lo[i] = static_cast<float>(k == 0 ? T{0} : residual_of_sum(sum, before, x[i]));
    } else {
      sum = static_cast<T>(static_cast<std::uint64_t>(sum) + static_cast<std::uint64_t>(x[i]));
    }
    y[i] = sum;
  }
}

template <bool reverse>
void cumsum_row(const KernelTable&, Compute compute, std::byte* out, float* lo, const std::byte* const* in,
                std::int64_t n) {
  with_compute_type(compute, [&]<class T>(T*) { prefix_sums<T, reverse>(out, lo, in[0], n); });
}

std::vector<OutputDef> infer_cumsum(const InferContext& context) {
  normalize_axis(context.name(), context.get(kDim), context.type(0).shape.size());
  return {{context.type(0), {}}};
}

/// Along an axis that is not the last: each row is the sum of the row before and of its elements.
class ColumnSums {
 public:
  ColumnSums(const EvalSpec& spec, const AxisExtents& extents)
      : kernels_(spec.kernels),
        of_(extents),
        dtype_(spec.outputs[0].dtype),
        compute_(compute_of(dtype_)),
        reverse_(spec.op.get(kReverse)),
        stochastic_(spec.stochastic && is_narrow_float(dtype_)) {}

  void operator()(const BlockRun& run) const {
    for_each_columns(
        run, of_, [&](const Block& block, std::int64_t o, std::int64_t column, std::int64_t count) {
          is_narrow_float(dtype_) ? narrow(block, o, column, count) : wide(block, o, column, count);
        });
  }

 private:
  /// Number of the first element of row k of the columns.
  std::int64_t at(std::int64_t o, std::int64_t k, std::int64_t column) const {
    return (o * of_.n + (reverse_ ? of_.n - 1 - k : k)) * of_.inner + column;
  }
  void add(void* sum, float* lo, const void* a, const void* b, std::int64_t count) const {
    const std::array<const void*, 2> operands = {a, b};
    kernels_.elementwise(kernels::ElementwiseOp::kAdd, compute_)(sum, lo, operands.data(), count, nullptr);
  }
  void wide(const Block& block, std::int64_t o, std::int64_t column, std::int64_t count) const {
    const auto size = static_cast<std::int64_t>(size_of(dtype_));
    const std::byte* before = nullptr;
    for (std::int64_t k = 0; k < of_.n; ++k) {
      std::byte* const to = block.out() + at(o, k, column) * size;
      const std::byte* const from = block.in(0) + at(o, k, column) * size;
      if (before == nullptr)
        load_tile(kernels_, dtype_, compute_, to, from, count);
      else
        add(to, nullptr, before, from, count);
      before = to;
    }
  }
  /// The sums are kept as floats.
  void narrow(const Block& block, std::int64_t o, std::int64_t column, std::int64_t count) const {
    const auto size = static_cast<std::int64_t>(size_of(dtype_));
    auto* const sums = static_cast<float*>(thread_scratch(3 * kTile * sizeof(float)));
    float *const item = sums + kTile, *const lo = item + kTile;
    for (std::int64_t k = 0; k < of_.n; ++k) {
      const std::int64_t first = at(o, k, column);
      load_tile(kernels_, dtype_, compute_, k == 0 ? sums : item, block.in(0) + first * size, count);
      if (k > 0) add(sums, lo, sums, item, count);
      store_tile(kernels_, compute_, dtype_, block.out() + first * size, sums, k == 0 ? nullptr : lo, count,
                 block.key(stochastic_), static_cast<std::uint64_t>(first));
    }
  }

  const KernelTable& kernels_;
  AxisExtents of_;
  DType dtype_;
  Compute compute_;
  bool reverse_, stochastic_;
};

BlockKernel eval_cumsum(const EvalSpec& spec) {
  const bool reverse = spec.op.get(kReverse);
  const Shape& shape = spec.outputs[0].shape;
  const AxisExtents extents(shape, normalize_axis(spec.op.def->name, spec.op.get(kDim), shape.size()));
  if (extents.inner > 1) return ColumnSums(spec, extents);
  return AxisRows(spec, reverse ? cumsum_row<true> : cumsum_row<false>, 1, true, kDim);
}

GradValue cumsum_grad(Grad& g) {
  return g.call("cumsum", {g.dy()}, {g.same(kDim), kReverse(!g.get(kReverse))});
}

// cumprod, cummax, cummin

/// Calls body(row of input 0, args, n), typed, for every row along attribute kDim.
template <class Body>
BlockKernel scan_kernel(const EvalSpec& spec, Body body) {
  const Shape& shape = spec.inputs[0]->shape;
  const std::int64_t axis = normalize_axis(spec.op.def->name, spec.op.get(kDim), shape.size());
  const std::int64_t n = shape[static_cast<std::size_t>(axis)];
  return with_compute_type(compute_of(spec.inputs[0]->dtype), [&]<class T>(T*) {
    return row_kernel(spec, {axis}, [body, n](const RowArgs& args) {
      body(reinterpret_cast<const T*>(args.in[0]), args, n);
    });
  });
}

template <class T>
T scan_product(T a, T b) {
  if constexpr (std::is_floating_point_v<T>)
    return a * b;
  else
    return static_cast<T>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
}

BlockKernel eval_cumprod(const EvalSpec& spec) {
  return scan_kernel(spec, []<class T>(const T* x, const RowArgs& args, std::int64_t n) {
    auto* const y = reinterpret_cast<T*>(args.out[0]);
    T product = 1;
    for (std::int64_t i = 0; i < n; ++i) y[i] = product = i == 0 ? x[0] : scan_product(product, x[i]);
  });
}

/// dx[i] = sum over j >= i of dy[j] times the product of the elements up to j but i, which may be zeros.
BlockKernel eval_cumprod_grad(const EvalSpec& spec) {
  return scan_kernel(spec, []<class T>(const T* x, const RowArgs& args, std::int64_t n) {
    const auto* const dy = reinterpret_cast<const T*>(args.in[1]);
    auto* const dx = reinterpret_cast<T*>(args.out[0]);
    T before = 1;
    for (std::int64_t i = 0; i < n; ++i) {
      T others = before, sum = scan_product(dy[i], others);
      for (std::int64_t j = i + 1; j < n; ++j) {
        others = scan_product(others, x[j]);
        sum = static_cast<T>(sum + scan_product(dy[j], others));
      }
      dx[i] = sum;
      before = scan_product(before, x[i]);
    }
  });
}

/// True if x takes the place of the extreme so far: the last one of equals, and NaN for good.
template <bool largest, class T>
bool replaces(T x, T extreme) {
  if (extreme != extreme) return false;
  return x != x || (largest ? x >= extreme : x <= extreme);
}

template <bool largest>
BlockKernel eval_cumulative_extreme(const EvalSpec& spec) {
  return scan_kernel(spec, []<class T>(const T* x, const RowArgs& args, std::int64_t n) {
    auto* const y = reinterpret_cast<T*>(args.out[0]);
    std::int64_t at = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      if (replaces<largest>(x[i], x[at])) at = i;
      y[i] = x[at];
    }
  });
}

/// The gradient of a result goes to the element that it is.
BlockKernel eval_cumulative_extreme_grad(const EvalSpec& spec) {
  const bool largest = spec.op.get(kOfLargest);
  return scan_kernel(spec, [largest]<class T>(const T* x, const RowArgs& args, std::int64_t n) {
    const auto* const dy = reinterpret_cast<const T*>(args.in[1]);
    auto* const dx = reinterpret_cast<T*>(args.out[0]);
    std::int64_t at = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      if (largest ? replaces<true>(x[i], x[at]) : replaces<false>(x[i], x[at])) at = i;
      dx[i] = 0;
      dx[at] = static_cast<T>(dx[at] + dy[i]);
    }
  });
}

template <bool largest>
OpDef cumulative_extreme(std::string_view name) {
  return {.name = name,
          .inputs = {{"t", kNumbers}},
          .attrs = {optional(kDim, 0)},
          .infer = infer_cumsum,
          .kernel = {.eval = eval_cumulative_extreme<largest>},
          .grad = per_input({[](Grad& g) {
            return g.call("cumulative_extreme_grad", {g.x(), g.dy()}, {g.same(kDim), kOfLargest(largest)});
          }})};
}

/// Products of the elements before times products of those after.
template <class T>
void others(const RowArgs& args, std::int64_t n) {
  const auto* const x = reinterpret_cast<const T*>(args.in[0]);
  auto* const y = reinterpret_cast<T*>(args.out[0]);
  T before = 1;
  for (std::int64_t i = 0; i < n; ++i) {
    y[i] = before;
    before = before * x[i];
  }
  T after = 1;
  for (std::int64_t i = n; i-- > 0;) {
    y[i] = y[i] * after;
    after = after * x[i];
  }
}

BlockKernel eval_prod_of_others(const EvalSpec& spec) {
  const Shape& shape = spec.inputs[0]->shape;
  std::vector<std::int64_t> axes = reduced_axes(spec.op, shape.size());
  const std::int64_t n = reduced_count(shape, axes);
  const bool wide = compute_of(spec.outputs[0].dtype) == Compute::kF64;
  return row_kernel(spec, std::move(axes), [n, wide](const RowArgs& args) {
    wide ? others<double>(args, n) : others<float>(args, n);
  });
}

}  // namespace

std::vector<OpDef> scans_ops() {
  return {
      {.name = "cumsum",
       .inputs = {{"t", kNumbers}},
       .attrs = {optional(kDim, 0), internal(kReverse, false)},
       .infer = infer_cumsum,
       .kernel = {.eval = eval_cumsum, .flops = flops_per_input<1>},
       .grad = per_input({cumsum_grad}),
       .numerics = kRoundsOnce},
      {.name = "cumprod",
       .inputs = {{"t", kNumbers}},
       .attrs = {optional(kDim, 0)},
       .infer = infer_cumsum,
       .kernel = {.eval = eval_cumprod, .flops = flops_per_input<1>},
       .grad = per_input({[](Grad& g) {
         return g.call("cumprod_grad", {g.x(), g.dy()}, {g.same(kDim)});
       }}),
       .numerics = kRoundsOnce},
      cumulative_extreme<true>("cummax"),
      cumulative_extreme<false>("cummin"),
      {.name = "cumprod_grad",
       .inputs = {{"t", kFloating}, {"dy", kFloating}},
       .attrs = {required(kDim)},
       .infer = same_as_input,
       .kernel = {.eval = eval_cumprod_grad},
       .numerics = kRoundsOnce,
       .program = {.internal = true}},
      {.name = "cumulative_extreme_grad",
       .inputs = {{"t", kFloating}, {"dy", kFloating}},
       .attrs = {required(kDim), required(kOfLargest)},
       .infer = same_as_input,
       .kernel = {.eval = eval_cumulative_extreme_grad},
       .numerics = kRoundsOnce,
       .program = {.internal = true}},
      {.name = "prod_of_others",
       .inputs = {{"t", kFloating}},
       .attrs = {optional(kAxes)},
       .infer = same_as_input,
       .kernel = {.eval = eval_prod_of_others},
       .numerics = kRoundsOnce,
       .program = {.internal = true}},
  };
}

}  // namespace popsr
