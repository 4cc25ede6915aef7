// grid_sample: samples of images at computed places, and its gradients.
//
// A result is a sum over neighbours, the outermost axis first, both ascending. The gradient of the operand
// is added in the order of the places, the gradient of the grid over channels, then over neighbours. Nothing
// depends on the number of threads: they share results and places, and the planes of the operand for its
// gradient.
#include <utility>
#include <vector>

#include "popsr/base/error.h"
#include "popsr/exec/block_kernel.h"
#include "popsr/ops/attributes.h"
#include "popsr/ops/infer.h"
#include "popsr/ops/loops/blocks.h"
#include "popsr/ops/loops/tiles.h"
#include "popsr/ops/nn/pool/grid_taps.h"
#include "popsr/ops/registry.h"

namespace popsr {
namespace {

constexpr Choice<GridMode> kGridModes[] = {
    {"nearest", GridMode::kNearest}, {"linear", GridMode::kLinear}, {"cubic", GridMode::kCubic}};
constexpr Choice<GridPadding> kGridPaddings[] = {{"zeros", GridPadding::kZeros},
                                                 {"border", GridPadding::kBorder},
                                                 {"reflection", GridPadding::kReflection}};
constexpr ChoiceAttr<GridMode> kGridMode{"mode", kGridModes};
constexpr ChoiceAttr<GridPadding> kGridPadding{"padding_mode", kGridPaddings};
constexpr Attr<bool> kAlignCorners{"align_corners"};

/// Number of samples of a part, whose neighbours are computed at once.
constexpr std::int64_t kGridPart = 256;

// Places

/// A neighbour of a place; `slopes`: derivatives of the weight by the coordinates of the axes.
template <class T>
struct GridNeighbour {
  std::int64_t offset;
  T weight;
  std::array<T, kGridAxes> slopes;
};

/// The neighbours of some places, one after another.
template <class T>
struct GridNeighbours {
  std::vector<GridNeighbour<T>> all = {};
  std::vector<std::size_t> ends = {};

  void clear() {
    all.clear();
    ends.clear();
  }
  std::size_t begin(std::size_t place) const { return place == 0 ? 0 : ends[place - 1]; }
};

/// Extents of [samples, channels, *spatial] and of a grid of places.
template <class T>
class GridGeometry {
 public:
  GridGeometry(const Op& op, const Shape& t, const Shape& grid)
      : samples_(t[0]), channels_(t[1]), places_(1), plane_(1) {
    for (std::size_t d = 2; d < t.size(); ++d) {
      axes_.emplace_back(op.get(kGridMode), op.get(kGridPadding), op.get(kAlignCorners), t[d]);
      plane_ *= t[d];
      strides_.push_back(num_elements(Shape(t.begin() + static_cast<std::ptrdiff_t>(d) + 1, t.end())));
    }
    for (std::size_t d = 1; d + 1 < grid.size(); ++d) places_ *= grid[d];
  }

  std::int64_t samples() const { return samples_; }
  std::int64_t channels() const { return channels_; }
  std::int64_t places() const { return places_; }
  std::int64_t plane() const { return plane_; }
  std::int64_t axes() const { return static_cast<std::int64_t>(axes_.size()); }

  /// Appends the neighbours of n places. A coordinate of the grid is of the last axis first.
  void append(GridNeighbours<T>& to, const T* grid, std::int64_t n) const {
    for (std::int64_t p = 0; p < n; ++p) {
      const std::size_t first = to.all.size();
      to.all.push_back({0, 1, {}});
      for (std::size_t a = 0; a < axes_.size(); ++a) {
        expand(to.all, first, axes_[a].at(grid[(p + 1) * axes() - 1 - static_cast<std::int64_t>(a)]), a);
      }
      to.ends.push_back(to.all.size());
    }
  }

 private:
  /// Each neighbour from `first` on times the elements of axis a.
  void expand(std::vector<GridNeighbour<T>>& all, std::size_t first, const GridTaps<T>& taps,
              std::size_t a) const {
    const std::size_t have = all.size() - first;
    all.resize(first + have * taps.count);
    for (std::size_t i = have; i-- > 0;) {
      const GridNeighbour<T> old = all[first + i];
      for (std::size_t k = taps.count; k-- > 0;) {
        const GridTap<T>& tap = taps.taps[k];
        GridNeighbour<T> made{old.offset + tap.index * strides_[a], old.weight * tap.weight, old.slopes};
        for (std::size_t b = 0; b < a; ++b) made.slopes[b] *= tap.weight;
        made.slopes[a] = old.weight * tap.slope;
        all[first + i * taps.count + k] = made;
      }
    }
  }

  std::int64_t samples_, channels_, places_, plane_;
  std::vector<GridAxis<T>> axes_ = {};
  std::vector<std::int64_t> strides_ = {};
};

// Kernels

/// Operands and geometry that the three kernels share. Numbers of the compute type are read where they are.
template <class T>
class GridKernel {
 public:
  GridKernel(const EvalSpec& spec, const Shape& t, const Shape& grid)
      : kernels_(spec.kernels),
        of_(spec.op, t, grid),
        dtype_(spec.outputs[0].dtype),
        stochastic_(spec.stochastic && is_narrow_float(dtype_)) {}

 protected:
  std::int64_t size() const { return static_cast<std::int64_t>(size_of(dtype_)); }
  /// n elements of an input; `room` holds them where they are widened.
  const T* wide(const std::byte* from, std::int64_t n, std::vector<T>& room) const {
    return widened(kernels_, dtype_, from, n, room);
  }
  void store(const Block& block, std::int64_t first, const T* from, std::int64_t n) const {
    store_tile(kernels_, kComputeOf<T>, dtype_, block.out() + first * size(), from, nullptr, n,
               block.key(stochastic_), static_cast<std::uint64_t>(first));
  }
  /// Calls body(sample, first place, n) for parts of the places.
  template <class Body>
  void for_each_part(const BlockRun& run, const Body& body) const {
    const std::int64_t parts = (of_.places() + kGridPart - 1) / kGridPart;
    const std::int64_t work = of_.samples() * of_.places() * (of_.channels() + 4) * 4;
    parallel_for(run.pool, of_.samples() * parts, 1, work, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t part = begin; part < end; ++part) {
        const std::int64_t first = part % parts * kGridPart;
        body(part / parts, first, std::min(kGridPart, of_.places() - first));
      }
    });
  }
  /// The neighbours of n places of a sample.
  GridNeighbours<T> neighbours(const T* grid, std::int64_t sample, std::int64_t first, std::int64_t n) const {
    GridNeighbours<T> made;
    made.all.reserve(static_cast<std::size_t>(n) << of_.axes());
    of_.append(made, grid + (sample * of_.places() + first) * of_.axes(), n);
    return made;
  }

  const kernels::KernelTable& kernels_;
  GridGeometry<T> of_;
  DType dtype_;
  bool stochastic_;
};

/// Inputs: t, grid.
template <class T>
class GridSample : GridKernel<T> {
  using GridKernel<T>::of_;

 public:
  explicit GridSample(const EvalSpec& spec)
      : GridKernel<T>(spec, spec.inputs[0]->shape, spec.inputs[1]->shape) {}

  void operator()(const BlockRun& run) const {
    std::vector<T> t_room, grid_room;
    for_each_block(run, [&](const Block& block) {
      const T* const t = this->wide(block.in(0), of_.samples() * of_.channels() * of_.plane(), t_room);
      const T* const grid = this->wide(block.in(1), of_.samples() * of_.places() * of_.axes(), grid_room);
      this->for_each_part(run, [&](std::int64_t sample, std::int64_t first, std::int64_t n) {
        const GridNeighbours<T> near = this->neighbours(grid, sample, first, n);
        const std::int64_t end = (sample + 1) * of_.channels();
        for (std::int64_t c = sample * of_.channels(); c < end; c += kTogether) {
          end - c < kTogether ? blend<1>(block, near, t, c, end, first)
                              : blend<kTogether>(block, near, t, c, end, first);
        }
      });
    });
  }

 private:
  static constexpr std::int64_t kTogether =
      4;  ///< Planes that are read together, so that their sums overlap.

  /// kPlanes planes at a time, up to plane `end`, or only the first ones where they are more than one.
  template <std::int64_t kPlanes>
  void blend(const Block& block, const GridNeighbours<T>& near, const T* t, std::int64_t plane,
             std::int64_t end, std::int64_t first) const {
    const std::int64_t stop = kPlanes == 1 ? end : plane + kPlanes;
    for (; plane < stop; plane += kPlanes) {
      alignas(64) T made[kPlanes][kGridPart];
      const T* const from = t + plane * of_.plane();
      const GridNeighbour<T>* next = near.all.data();
      for (std::size_t p = 0; p < near.ends.size(); ++p) {
        const GridNeighbour<T>* const last = near.all.data() + near.ends[p];
        T sums[kPlanes] = {};
        for (; next != last; ++next) {
          for (std::int64_t k = 0; k < kPlanes; ++k) {
            sums[k] += next->weight * from[next->offset + k * of_.plane()];
          }
        }
        for (std::int64_t k = 0; k < kPlanes; ++k) made[k][p] = sums[k];
      }
      for (std::int64_t k = 0; k < kPlanes; ++k) {
        this->store(block, (plane + k) * of_.places() + first, made[k],
                    static_cast<std::int64_t>(near.ends.size()));
      }
    }
  }
};

/// Gradient of the operand. Inputs: dy, grid.
template <class T>
class GridSampleGrad : GridKernel<T> {
  using GridKernel<T>::of_;

 public:
  explicit GridSampleGrad(const EvalSpec& spec)
      : GridKernel<T>(spec, spec.outputs[0].shape, spec.inputs[1]->shape) {}

  void operator()(const BlockRun& run) const {
    std::vector<T> dy_room, grid_room;
    for_each_block(run, [&](const Block& block) {
      const T* const dy = this->wide(block.in(0), of_.samples() * of_.channels() * of_.places(), dy_room);
      const T* const grid = this->wide(block.in(1), of_.samples() * of_.places() * of_.axes(), grid_room);
      for (std::int64_t sample = 0; sample < of_.samples(); ++sample) {
        const GridNeighbours<T> near = this->neighbours(grid, sample, 0, of_.places());
        const std::int64_t work = of_.channels() * (of_.places() * 8 + of_.plane());
        parallel_for(run.pool, of_.channels(), 1, work, [&](std::int64_t begin, std::int64_t end) {
          std::vector<T> plane(static_cast<std::size_t>(of_.plane()));
          for (std::int64_t c = begin; c < end; ++c) {
            const std::int64_t number = sample * of_.channels() + c;
            distribute(near, dy + number * of_.places(), plane);
            this->store(block, number * of_.plane(), plane.data(), of_.plane());
          }
        });
      }
    });
  }

 private:
  static void distribute(const GridNeighbours<T>& near, const T* dy, std::vector<T>& plane) {
    std::ranges::fill(plane, T{0});
    const GridNeighbour<T>* next = near.all.data();
    for (const std::size_t stop : near.ends) {
      for (; next != near.all.data() + stop; ++next) {
        plane[static_cast<std::size_t>(next->offset)] += next->weight * *dy;
      }
      ++dy;
    }
  }
};

/// Gradient of the grid. Inputs: dy, t, grid.
template <class T>
class GridSampleGridGrad : GridKernel<T> {
  using GridKernel<T>::of_;

 public:
  explicit GridSampleGridGrad(const EvalSpec& spec)
      : GridKernel<T>(spec, spec.inputs[1]->shape, spec.outputs[0].shape) {}

  void operator()(const BlockRun& run) const {
    std::vector<T> dy_room, t_room, grid_room;
    for_each_block(run, [&](const Block& block) {
      const T* const dy = this->wide(block.in(0), of_.samples() * of_.channels() * of_.places(), dy_room);
      const T* const t = this->wide(block.in(1), of_.samples() * of_.channels() * of_.plane(), t_room);
      const T* const grid = this->wide(block.in(2), of_.samples() * of_.places() * of_.axes(), grid_room);
      this->for_each_part(run, [&](std::int64_t sample, std::int64_t first, std::int64_t n) {
        const GridNeighbours<T> near = this->neighbours(grid, sample, first, n);
        std::vector<T> sums(near.all.size());
        for (std::int64_t c = sample * of_.channels(); c < (sample + 1) * of_.channels(); ++c) {
          add_products(near, t + c * of_.plane(), dy + c * of_.places() + first, sums);
        }
        store_slopes(block, near, sums, sample * of_.places() + first);
      });
    });
  }

 private:
  static void add_products(const GridNeighbours<T>& near, const T* plane, const T* dy, std::vector<T>& sums) {
    std::size_t i = 0;
    for (const std::size_t stop : near.ends) {
      for (; i < stop; ++i) sums[i] += plane[near.all[i].offset] * *dy;
      ++dy;
    }
  }
  void store_slopes(const Block& block, const GridNeighbours<T>& near, const std::vector<T>& sums,
                    std::int64_t first) const {
    std::vector<T> made(near.ends.size() * static_cast<std::size_t>(of_.axes()));
    std::size_t i = 0;
    for (std::size_t p = 0; p < near.ends.size(); ++p) {
      for (; i < near.ends[p]; ++i) {
        for (std::int64_t a = 0; a < of_.axes(); ++a) {
          const std::size_t to =
              (p + 1) * static_cast<std::size_t>(of_.axes()) - 1 - static_cast<std::size_t>(a);
          made[to] += sums[i] * near.all[i].slopes[static_cast<std::size_t>(a)];
        }
      }
    }
    this->store(block, first * of_.axes(), made.data(), static_cast<std::int64_t>(made.size()));
  }
};

template <template <class> class Kernel>
BlockKernel eval_grid(const EvalSpec& spec) {
  if (spec.outputs[0].dtype == DType::kFloat64) return Kernel<double>(spec);
  return Kernel<float>(spec);
}

// Definitions

std::vector<OutputDef> infer_grid_sample(const InferContext& context) {
  require_equal_dtypes(context, 0, 1);
  const TensorType& t = context.type(0);
  const Shape& grid = context.type(1).shape;
  const std::size_t rank = t.shape.size();
  if (rank < 3 || rank > 2 + kGridAxes || num_elements(Shape(t.shape.begin() + 2, t.shape.end())) == 0) {
    raise<ShapeError>(
        "{}: operand has no spatial axes, got {}, expected [samples, channels, 1 to {} extents]",
        context.name(), describe(context, 0), kGridAxes);
  }
  if (grid.size() != rank || grid[0] != t.shape[0] || grid.back() != static_cast<std::int64_t>(rank) - 2) {
    raise<ShapeError>("{}: grid does not match, got {} for {}, expected [{}, ..., {}] of rank {}",
                      context.name(), describe(context, 1), describe(context, 0), t.shape[0], rank - 2, rank);
  }
  Shape shape{t.shape[0], t.shape[1]};
  shape.insert(shape.end(), grid.begin() + 1, grid.end() - 1);
  return {{{t.dtype, std::move(shape)}, {}}};
}

std::vector<AttrDef> grid_attrs() {
  return {optional(kGridMode, GridMode::kLinear), optional(kGridPadding, GridPadding::kZeros),
          optional(kAlignCorners, false)};
}

GradValue sampled_grad(Grad& g) {
  std::vector<NamedAttribute> attrs = g.same(grid_attrs());
  attrs.push_back(kShape(g.in_type(0).shape));
  return g.call("grid_sample_grad", {g.dy(), g.x(1)}, std::move(attrs));
}
GradValue grid_grad(Grad& g) {
  return g.call("grid_sample_grid_grad", {g.dy(), g.x(0), g.x(1)}, g.same(grid_attrs()));
}

std::vector<OutputDef> infer_grid_grad(const InferContext& context) { return {{context.type(2), {}}}; }

}  // namespace

std::vector<OpDef> grid_sample_ops() {
  std::vector<AttrDef> grad_attrs = grid_attrs();
  grad_attrs.push_back(required(kShape));
  return {
      {.name = "grid_sample",
       .inputs = {{"t", kFloating}, {"grid", kFloating}},
       .attrs = grid_attrs(),
       .infer = infer_grid_sample,
       .kernel = {.eval = eval_grid<GridSample>},
       .grad = per_input({sampled_grad, grid_grad}),
       .numerics = kRoundsOnce},
      {.name = "grid_sample_grad",
       .inputs = {{"dy", kFloating}, {"grid", kFloating}},
       .attrs = std::move(grad_attrs),
       .infer = of_given_shape,
       .kernel = {.eval = eval_grid<GridSampleGrad>},
       .numerics = kRoundsOnce,
       .program = {.internal = true}},
      {.name = "grid_sample_grid_grad",
       .inputs = {{"dy", kFloating}, {"t", kFloating}, {"grid", kFloating}},
       .attrs = grid_attrs(),
       .infer = infer_grid_grad,
       .kernel = {.eval = eval_grid<GridSampleGridGrad>},
       .numerics = kRoundsOnce,
       .program = {.internal = true}},
  };
}

}  // namespace popsr
