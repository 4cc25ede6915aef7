// Average and maximum over windows, with their gradients.
//
// A window's elements are added in C order, and an element's gradients in the order of the windows, so no
// result depends on the number of threads. A window that meets no element has the average 0 and the maximum
// -infinity.
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <type_traits>
#include <utility>

#include "popsr/base/error.h"
#include "popsr/exec/block_kernel.h"
#include "popsr/ops/attributes.h"
#include "popsr/ops/infer.h"
#include "popsr/ops/loops/plane_walk.h"
#include "popsr/ops/loops/tiles.h"
#include "popsr/ops/nn/pool/windows.h"
#include "popsr/ops/registry.h"

namespace popsr {
namespace {

using kernels::ElementwiseOp;

/// Common parts of both ops: the windows, and the lines of a plane that a line of them meets.
struct Pool {
  PoolWindows windows;
  std::vector<std::int64_t> counts[PoolWindows::kDims];
  std::vector<TapRun> runs;  ///< Of the taps along the last axis.

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
  /// Calls visit(offset of the first element) for the lines of elements that line (d, h) of windows meets,
  /// ascending.
  template <class Visit>
  void met_lines(std::int64_t d, std::int64_t h, const Visit& visit) const {
    const auto& [depth, height, width] = windows.axes;
    for (std::int64_t i = 0; i < depth.kernel; ++i) {
      const std::int64_t z = depth.element(d, i);
      for (std::int64_t j = 0; z >= 0 && j < height.kernel; ++j) {
        const std::int64_t y = height.element(h, j);
        if (y >= 0) visit((z * height.in + y) * width.in);
      }
    }
  }
  /// Lines that line (d, h) of windows meets.
  std::int64_t num_met(std::int64_t d, std::int64_t h) const {
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

/// to[o] = from[o] / number of elements that the window meets, of which there are none where the sum is 0.
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
    pool.met_lines(d, h, [&](std::int64_t line) {
      for (const TapRun& run : pool.runs) {
        add_strided(sums + run.first, run.step, input<T>(args, 0) + line + run.from, run.from_step,
                    run.count);
      }
    });
    divide(pool, pool.num_met(d, h), sums, sums);
  });
}

template <class T>
void average_grad(const Pool& pool, const PlaneArgs& args) {
  auto* const dx = reinterpret_cast<T*>(args.out);
  auto* const parts = reinterpret_cast<T*>(args.scratch);
  std::fill_n(dx, pool.elements(), T{0});
  pool.lines([&](std::int64_t d, std::int64_t h, std::int64_t at) {
    divide(pool, pool.num_met(d, h), input<T>(args, 0) + at, parts);
    pool.met_lines(d, h, [&](std::int64_t line) {
      // Later taps of a line meet an element in earlier windows.
      for (auto run = pool.runs.rbegin(); run != pool.runs.rend(); ++run) {
        add_strided(dx + line + run->from, run->from_step, parts + run->first, run->step, run->count);
      }
    });
  });
}

// max_pool

/// Of floats of the compute type T, through ElementwiseOp::kMaximum alone: NaN wins, and +0 beats -0.
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
    pool_.met_lines(d, h, [&](std::int64_t at) {
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

/// The first maximum in C order that window `o` of line (d, h) meets: the first NaN where there is one; -1
/// when the window meets nothing.
template <class T>
std::int64_t first_maximum(const Pool& pool, const T* x, std::int64_t d, std::int64_t h, std::int64_t o) {
  std::int64_t found = -1;
  pool.met_lines(d, h, [&](std::int64_t line) {
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

/// Of the indices that ONNX's max_pool returns beside the values: checked only.
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

std::vector<OutputDef> infer_average_pool_grad(const InferContext& context) {
  return {{{context.type(0).dtype, context.get(kShape)}, {}}};
}
std::vector<OutputDef> infer_max_pool_grad(const InferContext& context) { return {{context.type(0), {}}}; }

std::vector<AttrDef> with(AttrDef last) {
  std::vector<AttrDef> attrs = window_attrs();
  attrs.push_back(std::move(last));
  return attrs;
}

}  // namespace

std::vector<OpDef> pool_ops() {
  return {
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
       .infer = infer_average_pool_grad,
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
}

}  // namespace popsr
