// Average, maximum and other reductions over windows, with their gradients.
//
// A window's elements are added in C order, and an element's gradients in the order of the windows, so no
// result depends on the number of threads. A window that meets no element has the average 0 and the maximum
// -infinity.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <memory>
#include <type_traits>
#include <utility>

#include "popsr/base/error.h"
#include "popsr/exec/block_kernel.h"
#include "popsr/ops/attributes.h"
#include "popsr/ops/infer.h"
#include "popsr/ops/loops/plane_walk.h"
#include "popsr/ops/loops/row_walk.h"
#include "popsr/ops/loops/tiles.h"
#include "popsr/ops/nn/pool/windows.h"
#include "popsr/ops/registry.h"

namespace popsr {
namespace {

using kernels::ElementwiseOp;

/// Common parts of both ops: the windows, and the lines of a plane that belong to a line of windows.
struct Pool {
  PoolWindows windows;
  std::vector<std::int64_t> counts[PoolWindows::kDims];
  std::vector<TapRun> runs;  ///< Runs of the taps along the last axis.

  explicit Pool(PoolWindows given) : windows(std::move(given)) {
    for (std::size_t axis = 0; axis < PoolWindows::kDims; ++axis) counts[axis] = windows.counts(axis);
    for (std::int64_t k = 0; k < line().kernel; ++k) {
      if (const TapRun run = line().run(k); run.count > 0) runs.push_back(run);
    }
  }
  const PoolAxis& line() const { return windows.axes[2]; }
  std::int64_t elements() const { return windows.axes[0].in * windows.axes[1].in * line().in; }
  std::int64_t results() const { return windows.axes[0].out() * windows.axes[1].out() * line().out(); }
  bool has_margins() const {
    return std::ranges::any_of(windows.axes,
                               [](const PoolAxis& axis) { return axis.before + axis.after > 0; });
  }

  /// Calls visit(d, h, offset of the first result) for the lines of windows, ascending.
  template <class Visit>
  void lines(const Visit& visit) const {
    const auto& [depth, height, width] = windows.axes;
    for (std::int64_t d = 0; d < depth.windows; ++d) {
      for (std::int64_t h = 0; h < height.windows; ++h) {
        const std::int64_t line = (d + depth.before) * height.out() + h + height.before;
        visit(d, h, line * width.out() + width.before);
      }
    }
  }
  /// Calls visit(offset of the first element) for the lines of elements that belong to line (d, h) of
  /// windows, ascending.
  template <class Visit>
  void for_each_window_line(std::int64_t d, std::int64_t h, const Visit& visit) const {
    const auto& [depth, height, width] = windows.axes;
    for (std::int64_t i = 0; i < depth.kernel; ++i) {
      const std::int64_t z = depth.element(d, i);
      for (std::int64_t j = 0; z >= 0 && j < height.kernel; ++j) {
        const std::int64_t y = height.element(h, j);
        if (y >= 0) visit((z * height.in + y) * width.in);
      }
    }
  }
  /// Number of lines of elements that belong to line (d, h) of windows.
  std::int64_t num_window_elements(std::int64_t d, std::int64_t h) const {
    return counts[0][static_cast<std::size_t>(d)] * counts[1][static_cast<std::size_t>(h)];
  }
};

template <class T>
const T* input(const PlaneArgs& args, std::size_t i) {
  return reinterpret_cast<const T*>(args.in[i]);
}

// average_pool

/// to[i * to_step] += from[i * from_step]; the usual steps are known to the compiler.
template <class T>
void add_strided(T* to, std::int64_t to_step, const T* from, std::int64_t from_step, std::int64_t count) {
  const auto add = [&](auto a, auto b) {
    for (std::int64_t i = 0; i < count; ++i) to[i * a] += from[i * b];
  };
  constexpr std::integral_constant<std::int64_t, 1> kOne;
  constexpr std::integral_constant<std::int64_t, 2> kTwo;
  if (to_step == 1 && from_step == 1) return add(kOne, kOne);
  if (to_step == 1 && from_step == 2) return add(kOne, kTwo);
  if (to_step == 2 && from_step == 1) return add(kTwo, kOne);
  add(to_step, from_step);
}

/// Divides: to[o] = from[o] / number of elements in the window; a window without elements has sum 0.
template <class T>
void divide(const Pool& pool, std::int64_t lines, const T* from, T* to) {
  const auto& counts = pool.counts[2];
  for (std::size_t o = 0; o < counts.size(); ++o) {
    to[o] = from[o] / static_cast<T>(std::max<std::int64_t>(lines * counts[o], 1));
  }
}

template <class T>
void average(const Pool& pool, const PlaneArgs& args) {
  auto* const out = reinterpret_cast<T*>(args.out);
  if (pool.has_margins()) std::fill_n(out, pool.results(), T{0});
  pool.lines([&](std::int64_t d, std::int64_t h, std::int64_t at) {
    T* const sums = out + at;
    std::fill_n(sums, pool.line().windows, T{0});
    pool.for_each_window_line(d, h, [&](std::int64_t line) {
      for (const TapRun& run : pool.runs) {
        add_strided(sums + run.first, run.step, input<T>(args, 0) + line + run.from, run.from_step,
                    run.count);
      }
    });
    divide(pool, pool.num_window_elements(d, h), sums, sums);
  });
}

template <class T>
void average_grad(const Pool& pool, const PlaneArgs& args) {
  auto* const dx = reinterpret_cast<T*>(args.out);
  auto* const parts = reinterpret_cast<T*>(args.scratch);
  std::fill_n(dx, pool.elements(), T{0});
  pool.lines([&](std::int64_t d, std::int64_t h, std::int64_t at) {
    divide(pool, pool.num_window_elements(d, h), input<T>(args, 0) + at, parts);
    pool.for_each_window_line(d, h, [&](std::int64_t line) {
      // Later taps of a line meet an element in earlier windows.
      for (auto run = pool.runs.rbegin(); run != pool.runs.rend(); ++run) {
        add_strided(dx + line + run->from, run->from_step, parts + run->first, run->step, run->count);
      }
    });
  });
}

// max_pool

/// Maximum of floats of the compute type T, through ElementwiseOp::kMaximum alone: NaN wins, and +0 beats
/// -0.
template <class T>
class Maxima {
 public:
  Maxima(const kernels::KernelTable& kernels, const Pool& pool, std::byte* scratch)
      : maximum_(kernels.elementwise(ElementwiseOp::kMaximum, std::is_same_v<T, double>
                                                                  ? kernels::Compute::kF64
                                                                  : kernels::Compute::kF32)),
        pool_(pool),
        line_(reinterpret_cast<T*>(scratch)),
        picked_(line_ + pool.line().in) {}

  /// to = maxima of the windows of line (d, h).
  void line(const T* plane, std::int64_t d, std::int64_t h, T* to) const {
    std::fill_n(to, pool_.line().windows, -std::numeric_limits<T>::infinity());
    const std::int64_t width = pool_.line().in;
    const T* met = nullptr;
    pool_.for_each_window_line(d, h, [&](std::int64_t at) {
      if (met != nullptr) meet(line_, met, plane + at, width);
      met = met == nullptr ? plane + at : line_;
    });
    if (met == nullptr) return;
    for (const TapRun& run : pool_.runs) tap(run, met, to);
  }

 private:
  void meet(T* to, const T* a, const T* b, std::int64_t n) const {
    const void* const in[] = {a, b};
    maximum_(to, nullptr, in, n, nullptr);
  }

  void tap(const TapRun& run, const T* met, T* to) const {
    if (run.step != 1) {
      for (std::int64_t i = 0; i < run.count; ++i) {
        T* const one = to + run.first + i * run.step;
        meet(one, one, met + run.from + i * run.from_step, 1);
      }
      return;
    }
    const T* from = met + run.from;
    if (run.from_step != 1) {
      for (std::int64_t i = 0; i < run.count; ++i) picked_[i] = from[i * run.from_step];
      from = picked_;
    }
    meet(to + run.first, to + run.first, from, run.count);
  }

  kernels::ElementwiseFn maximum_;
  const Pool& pool_;
  T* line_;
  T* picked_;
};

template <class T>
void maximum(const kernels::KernelTable& kernels, const Pool& pool, const PlaneArgs& args) {
  const Maxima<T> maxima(kernels, pool, args.scratch);
  auto* const out = reinterpret_cast<T*>(args.out);
  if (pool.has_margins()) std::fill_n(out, pool.results(), T{0});
  pool.lines([&](std::int64_t d, std::int64_t h, std::int64_t at) {
    maxima.line(input<T>(args, 0), d, h, out + at);
  });
}

/// Index of the maximum of window `o` of line (d, h): the first in C order, or the first NaN if there is
/// one; -1 for a window without elements.
template <class T>
std::int64_t first_maximum(const Pool& pool, const T* x, std::int64_t d, std::int64_t h, std::int64_t o) {
  std::int64_t found = -1;
  pool.for_each_window_line(d, h, [&](std::int64_t line) {
    for (std::int64_t k = 0; k < pool.line().kernel; ++k) {
      const std::int64_t at = pool.line().element(o, k);
      if (at < 0) continue;
      const T value = x[line + at];
      if (found < 0 || value > x[found] || (std::isnan(value) && !std::isnan(x[found]))) found = line + at;
    }
  });
  return found;
}

template <class T>
void maximum_grad(const Pool& pool, const PlaneArgs& args) {
  auto* const dx = reinterpret_cast<T*>(args.out);
  std::fill_n(dx, pool.elements(), T{0});
  pool.lines([&](std::int64_t d, std::int64_t h, std::int64_t at) {
    for (std::int64_t o = 0; o < pool.line().windows; ++o) {
      const std::int64_t found = first_maximum(pool, input<T>(args, 0), d, h, o);
      if (found >= 0) dx[found] += input<T>(args, 1)[at + o];
    }
  });
}

// Definitions

/// Order of the indices that ONNX's max_pool returns beside the values: checked only.
enum class StorageOrder : std::uint8_t { kRow, kColumn };
constexpr Choice<StorageOrder> kStorageOrders[] = {{"row", StorageOrder::kRow},
                                                   {"column", StorageOrder::kColumn}};
constexpr ChoiceAttr<StorageOrder> kStorageOrder{"storage_order", kStorageOrders};

std::vector<OutputDef> infer_pool(const InferContext& context) {
  const TensorType& t = context.type(0);
  return {{{t.dtype, pooled_shape(pool_windows(context.op, t.shape), t.shape)}, {}}};
}

/// `body(pool, args, zero of the compute type)` for every plane of an operand of shape `t`.
template <class Body>
BlockKernel kernel_of(const EvalSpec& spec, const Shape& t, const Body& body) {
  const auto pool = std::make_shared<const Pool>(pool_windows(spec.op, t));
  const std::int64_t scratch = pool->line().in + pool->line().windows;
  if (spec.outputs[0].dtype == DType::kFloat64) {
    return plane_kernel(spec, pool->windows.planes, scratch,
                        [pool, body](const PlaneArgs& args) { body(*pool, args, double{}); });
  }
  return plane_kernel(spec, pool->windows.planes, scratch,
                      [pool, body](const PlaneArgs& args) { body(*pool, args, float{}); });
}

BlockKernel eval_average_pool(const EvalSpec& spec) {
  return kernel_of(spec, spec.inputs[0]->shape,
                   []<class T>(const Pool& pool, const PlaneArgs& args, T) { average<T>(pool, args); });
}
BlockKernel eval_average_pool_grad(const EvalSpec& spec) {
  return kernel_of(spec, spec.outputs[0].shape,
                   []<class T>(const Pool& pool, const PlaneArgs& args, T) { average_grad<T>(pool, args); });
}
BlockKernel eval_max_pool(const EvalSpec& spec) {
  return kernel_of(spec, spec.inputs[0]->shape,
                   [&table = spec.kernels]<class T>(const Pool& pool, const PlaneArgs& args, T) {
                     maximum<T>(table, pool, args);
                   });
}
BlockKernel eval_max_pool_grad(const EvalSpec& spec) {
  return kernel_of(spec, spec.inputs[0]->shape,
                   []<class T>(const Pool& pool, const PlaneArgs& args, T) { maximum_grad<T>(pool, args); });
}

GradValue average_pool_grad(Grad& g) {
  std::vector<NamedAttribute> attrs = g.same(window_attrs());
  attrs.push_back(kShape(g.in_type(0).shape));
  return g.call("average_pool_grad", {g.dy()}, std::move(attrs));
}

GradValue max_pool_grad(Grad& g) { return g.call("max_pool_grad", {g.x(), g.dy()}, g.same(window_attrs())); }

std::vector<OutputDef> infer_max_pool_grad(const InferContext& context) { return {{context.type(0), {}}}; }

// reduce_window: sums, products and extremes over windows of any axes, one after another in C order

enum class WindowStep : std::uint8_t { kSum, kMul, kMin, kMax };
constexpr Choice<WindowStep> kWindowSteps[] = {{"sum", WindowStep::kSum},
                                               {"mul", WindowStep::kMul},
                                               {"min", WindowStep::kMin},
                                               {"max", WindowStep::kMax}};
constexpr ChoiceAttr<WindowStep> kWindowStep{"reduction", kWindowSteps};
constexpr Attr<Shape> kWindowSizes{"window"}, kWindowStrides{"strides"}, kWindowLow{"low"},
    kWindowHigh{"high"}, kBaseDilation{"base_dilation"}, kWindowDilation{"window_dilation"};

/// The layout along one axis.
struct WindowAxis {
  std::int64_t in = 1, window = 1, stride = 1, low = 0, high = 0, base = 1, dilation = 1;

  std::int64_t out() const {
    const std::int64_t padded = low + (in == 0 ? 0 : (in - 1) * base + 1) + high;
    const std::int64_t span = (window - 1) * dilation + 1;
    return padded < span ? 0 : (padded - span) / stride + 1;
  }
  /// Elements in window o, ascending.
  std::vector<std::int64_t> met(std::int64_t o) const {
    std::vector<std::int64_t> elements;
    for (std::int64_t k = 0; k < window; ++k) {
      const std::int64_t at = o * stride + k * dilation - low;
      if (at >= 0 && at % base == 0 && at / base < in) elements.push_back(at / base);
    }
    return elements;
  }
};

std::vector<WindowAxis> window_axes_of(const Op& op, const Shape& shape) {
  const auto list = [&](const Attr<Shape>& attr, std::int64_t absent) {
    Shape values = op.find(attr).value_or(Shape(shape.size(), absent));
    if (values.size() == shape.size()) return values;
    raise<AttributeValueError>("{}: {} has a wrong length, got {}, expected {} numbers", op.def->name,
                               attr.name, to_string(values), shape.size());
  };
  const Shape window = list(kWindowSizes, 1), strides = list(kWindowStrides, 1), low = list(kWindowLow, 0),
              high = list(kWindowHigh, 0), base = list(kBaseDilation, 1), dilation = list(kWindowDilation, 1);
  constexpr std::int64_t kMost = std::int64_t{1} << 31;
  std::vector<WindowAxis> axes;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    for (const std::int64_t positive : {window[d], strides[d], base[d], dilation[d]}) {
      if (positive >= 1 && positive <= kMost && std::abs(low[d]) <= kMost && std::abs(high[d]) <= kMost)
        continue;
      raise<AttributeValueError>(
          "{}: layout of axis {} is out of range, got window {}, stride {}, padding {} and "
          "{}, dilations {} and {}, expected 1 to 2^31, and paddings of that magnitude",
          op.def->name, d, window[d], strides[d], low[d], high[d], base[d], dilation[d]);
    }
    axes.push_back({.in = shape[d],
                    .window = window[d],
                    .stride = strides[d],
                    .low = low[d],
                    .high = high[d],
                    .base = base[d],
                    .dilation = dilation[d]});
  }
  return axes;
}

std::vector<OutputDef> infer_reduce_window(const InferContext& context) {
  Shape shape;
  for (const WindowAxis& axis : window_axes_of(context.op, context.type(0).shape))
    shape.push_back(axis.out());
  return {{{context.type(0).dtype, std::move(shape)}, {}}};
}

/// Elements in each window, as offsets on each axis.
class WindowTaps {
 public:
  WindowTaps(const Op& op, const Shape& shape) {
    const Shape strides = row_major_strides(shape);
    const std::vector<WindowAxis> axes = window_axes_of(op, shape);
    for (std::size_t d = 0; d < axes.size(); ++d) {
      met_.emplace_back();
      for (std::int64_t o = 0; o < axes[d].out(); ++o) {
        met_.back().push_back(axes[d].met(o));
        for (std::int64_t& element : met_.back().back()) element *= strides[d];
      }
    }
  }
  /// Calls begin(o), then meet(element) for each element of the window, for all windows in C order.
  template <class Begin, class Meet>
  void visit(const Begin& begin, const Meet& meet) const {
    std::vector<const std::vector<std::int64_t>*> window(met_.size());
    std::int64_t next = 0;
    choose(0, window, [&] {
      begin(next++);
      elements(0, 0, window, meet);
    });
  }

 private:
  using Chosen = std::vector<const std::vector<std::int64_t>*>;

  template <class Body>
  void choose(std::size_t axis, Chosen& window, const Body& body) const {
    if (axis == met_.size()) return body();
    for (const std::vector<std::int64_t>& each : met_[axis]) {
      window[axis] = &each;
      choose(axis + 1, window, body);
    }
  }
  template <class Meet>
  void elements(std::size_t axis, std::int64_t offset, const Chosen& window, const Meet& meet) const {
    if (axis == window.size()) return meet(offset);
    for (const std::int64_t each : *window[axis]) elements(axis + 1, offset + each, window, meet);
  }

  std::vector<std::vector<std::vector<std::int64_t>>> met_ = {};  ///< [axis][window][element]
};

/// Comparison of extremes: NaN of floats wins; of equal extremes the first one stays.
template <class T>
T window_step(WindowStep step, T total, T x) {
  using Word = std::conditional_t<std::is_floating_point_v<T>, T, std::uint64_t>;
  switch (step) {
    case WindowStep::kSum:
      return static_cast<T>(static_cast<Word>(total) + static_cast<Word>(x));
    case WindowStep::kMul:
      return static_cast<T>(static_cast<Word>(total) * static_cast<Word>(x));
    case WindowStep::kMin:
      return total != total || x >= total ? total : x;
    default:
      return total != total || x <= total ? total : x;
  }
}

/// Result of a window without elements.
template <class T>
T neutral(WindowStep step) {
  using Limits = std::numeric_limits<T>;
  if (step == WindowStep::kSum) return 0;
  if (step == WindowStep::kMul) return 1;
  const bool least = step == WindowStep::kMax;
  if constexpr (Limits::has_infinity)
    return least ? -Limits::infinity() : Limits::infinity();
  else
    return least ? Limits::lowest() : Limits::max();
}

/// One row: the whole tensor.
template <class Body>
BlockKernel whole_kernel(const EvalSpec& spec, DType dtype, Body body) {
  std::vector<std::int64_t> axes(spec.outputs[0].shape.size());
  for (std::size_t d = 0; d < axes.size(); ++d) axes[d] = static_cast<std::int64_t>(d);
  if (num_elements(spec.outputs[0].shape) == 0) return [](const BlockRun&) {};
  return with_compute_type(compute_of(dtype),
                           [&]<class T>(T* none) { return row_kernel(spec, axes, body(none)); });
}

BlockKernel eval_reduce_window(const EvalSpec& spec) {
  return whole_kernel(
      spec, spec.inputs[0]->dtype,
      [taps = WindowTaps(spec.op, spec.inputs[0]->shape), step = spec.op.get(kWindowStep)]<class T>(T*) {
        return [taps, step](const RowArgs& args) {
          const auto* const x = reinterpret_cast<const T*>(args.in[0]);
          auto* out = reinterpret_cast<T*>(args.out[0]) - 1;
          bool first = true;
          taps.visit(
              [&](std::int64_t) {
                *++out = neutral<T>(step);
                first = true;
              },
              [&](std::int64_t i) {
                *out = first ? x[i] : window_step(step, *out, x[i]);
                first = false;
              });
        };
      });
}

/// Sums: to each element of a window. Extremes, which have input 1: to the first one that the result is.
BlockKernel eval_reduce_window_grad(const EvalSpec& spec) {
  const Shape& shape = spec.outputs[0].shape;
  const bool picks = spec.inputs.size() > 1 && spec.inputs[1].has_value();
  return whole_kernel(spec, spec.outputs[0].dtype,
                      [taps = WindowTaps(spec.op, shape), step = spec.op.get(kWindowStep),
                       n = num_elements(shape), picks]<class T>(T*) {
                        return [taps, step, n, picks](const RowArgs& args) {
                          auto* const dx = reinterpret_cast<T*>(args.out[0]);
                          const auto* const dy = reinterpret_cast<const T*>(args.in[0]);
                          const auto* const x = picks ? reinterpret_cast<const T*>(args.in[1]) : nullptr;
                          std::fill_n(dx, n, T{0});
                          std::int64_t window = 0, best = -1;
                          const auto give = [&] {
                            if (best >= 0) dx[best] += dy[window];
                            best = -1;
                          };
                          taps.visit(
                              [&](std::int64_t o) {
                                give();
                                window = o;
                              },
                              [&](std::int64_t i) {
                                if (!picks) {
                                  dx[i] += dy[window];
                                } else if (best < 0 || (x[best] == x[best] &&
                                                        !(window_step(step, x[best], x[i]) == x[best]))) {
                                  best = i;
                                }
                              });
                          give();
                        };
                      });
}

std::vector<AttrDef> reduce_window_attrs() {
  return {required(kWindowSizes),
          optional(kWindowStrides),
          optional(kWindowLow),
          optional(kWindowHigh),
          optional(kBaseDilation),
          optional(kWindowDilation),
          optional(kWindowStep, WindowStep::kSum)};
}

GradValue reduce_window_grad(Grad& g) {
  std::vector<NamedAttribute> attrs = g.same(reduce_window_attrs());
  attrs.push_back(kShape(g.in_type(0).shape));
  const bool picks = g.get(kWindowStep) != WindowStep::kSum;
  std::vector<GradValue> inputs = {g.dy()};
  if (picks) inputs.push_back(g.x());
  return g.call("reduce_window_grad", std::move(inputs), std::move(attrs));
}

std::vector<OpDef> reduce_window_ops() {
  std::vector<AttrDef> with_shape = reduce_window_attrs();
  with_shape.push_back(required(kShape));
  return {
      {.name = "reduce_window",
       .inputs = {{"t", kNumbers}},
       .attrs = reduce_window_attrs(),
       .infer = infer_reduce_window,
       .kernel = {.eval = eval_reduce_window},
       .grad = {.inputs = {reduce_window_grad},
                .refuses = [](const Op& op) { return op.get(kWindowStep) == WindowStep::kMul; }},
       .numerics = kRoundsOnce},
      {.name = "reduce_window_grad",
       .inputs = {{"dy", kFloating}, {.name = "t", .dtypes = kFloating, .optional = true}},
       .attrs = std::move(with_shape),
       .infer = of_given_shape,
       .kernel = {.eval = eval_reduce_window_grad},
       .numerics = kRoundsOnce,
       .program = {.internal = true}},
  };
}

std::vector<AttrDef> with(AttrDef last) {
  std::vector<AttrDef> attrs = window_attrs();
  attrs.push_back(std::move(last));
  return attrs;
}

}  // namespace

std::vector<OpDef> pool_ops() {
  std::vector<OpDef> ops = {
      {.name = "average_pool",
       .inputs = {{"t", kFloating}},
       .attrs = window_attrs(),
       .infer = infer_pool,
       .kernel = {.eval = eval_average_pool},
       .grad = per_input({average_pool_grad}),
       .numerics = kRoundsOnce},
      {.name = "average_pool_grad",
       .inputs = {{"dy", kFloating}},
       .attrs = with(required(kShape)),
       .infer = of_given_shape,
       .kernel = {.eval = eval_average_pool_grad},
       .numerics = kRoundsOnce,
       .program = {.internal = true}},
      {.name = "max_pool",
       .inputs = {{"t", kFloating}},
       .attrs = with(optional(kStorageOrder, StorageOrder::kRow)),
       .infer = infer_pool,
       .kernel = {.eval = eval_max_pool},
       .grad = per_input({max_pool_grad})},
      {.name = "max_pool_grad",
       .inputs = {{"t", kFloating}, {"dy", kFloating}},
       .attrs = window_attrs(),
       .infer = infer_max_pool_grad,
       .kernel = {.eval = eval_max_pool_grad},
       .numerics = kRoundsOnce,
       .program = {.internal = true}},
  };
  for (OpDef& op : reduce_window_ops()) ops.push_back(std::move(op));
  return ops;
}

}  // namespace popsr
