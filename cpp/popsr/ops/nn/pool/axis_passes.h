// Resampling of some axes of a tensor, one after another, the outermost first.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "popsr/base/layout/shape.h"
#include "popsr/exec/block_kernel.h"
#include "popsr/ops/loops/blocks.h"
#include "popsr/ops/loops/plane_walk.h"
#include "popsr/ops/nn/pool/taps.h"

namespace popsr {

/// Results along an axis; `fill` is the value of a result without elements.
struct ResampledAxis {
  std::size_t axis = 0;
  std::vector<Blend> blends = {};
  double fill = 0;
};

/// Pass along one axis of a plane: `outer` times `in` runs of `inner` elements become `outer` times `out`
/// runs.
template <class T>
struct AxisPass {
  std::int64_t outer, in, inner;
  AxisTaps<T> taps;
  T fill = 0;

  std::int64_t elements() const { return outer * in * inner; }
  std::int64_t results() const { return outer * taps.size() * inner; }
  void forward(const T* from, T* to) const {
    for (std::int64_t o = 0; o < outer; ++o) {
      const T* const line = from + o * in * inner;
      T* const result = to + o * taps.size() * inner;
      if (inner == 1) {
        taps.blend_line(line, result, fill);
        continue;
      }
      for (std::int64_t i = 0; i < taps.size(); ++i) taps.blend(i, line, result + i * inner, inner, fill);
    }
  }
  void backward(const T* from, T* to) const {
    std::fill_n(to, elements(), T{0});
    for (std::int64_t o = 0; o < outer; ++o) {
      for (std::int64_t i = 0; i < taps.size(); ++i) {
        taps.scatter(i, from + (o * taps.size() + i) * inner, to + o * in * inner, inner);
      }
    }
  }
};

/// Passes of a plane, which consists of all axes from the first resampled one on; the axes before it number
/// the planes.
template <class T>
class AxisPasses {
 public:
  /// Makes the passes; `axes` are ascending, `t` is the shape before them.
  AxisPasses(const std::vector<ResampledAxis>& axes, const Shape& t) {
    const std::size_t first = axes.empty() ? t.size() : axes[0].axis;
    for (std::size_t d = 0; d < first; ++d) planes_ *= t[d];
    Shape shape = t;
    for (const ResampledAxis& each : axes) {
      const auto begin = shape.begin() + static_cast<std::ptrdiff_t>(first);
      const auto at = shape.begin() + static_cast<std::ptrdiff_t>(each.axis);
      passes_.push_back({.outer = num_elements(Shape(begin, at)),
                         .in = *at,
                         .inner = num_elements(Shape(at + 1, shape.end())),
                         .taps = AxisTaps<T>(each.blends),
                         .fill = static_cast<T>(each.fill)});
      *at = passes_.back().taps.size();
    }
  }

  bool empty() const { return passes_.empty(); }
  std::int64_t planes() const { return planes_; }
  /// Elements of scratch: two buffers for data between passes.
  std::int64_t scratch() const { return 2 * between(); }

  void forward(const PlaneArgs& args) const {
    const auto* from = reinterpret_cast<const T*>(args.in[0]);
    for (std::size_t p = 0; p < passes_.size(); ++p) {
      T* const to = p + 1 == passes_.size() ? reinterpret_cast<T*>(args.out) : buffer(args, p);
      passes_[p].forward(from, to);
      from = to;
    }
  }
  void backward(const PlaneArgs& args) const {
    const auto* from = reinterpret_cast<const T*>(args.in[0]);
    for (std::size_t p = passes_.size(); p-- > 0;) {
      T* const to = p == 0 ? reinterpret_cast<T*>(args.out) : buffer(args, p);
      passes_[p].backward(from, to);
      from = to;
    }
  }

 private:
  std::int64_t between() const {
    std::int64_t most = 0;
    for (std::size_t p = 1; p < passes_.size(); ++p) most = std::max(most, passes_[p].elements());
    return most;
  }
  T* buffer(const PlaneArgs& args, std::size_t p) const {
    return reinterpret_cast<T*>(args.scratch) + static_cast<std::int64_t>(p % 2) * between();
  }

  std::int64_t planes_ = 1;
  std::vector<AxisPass<T>> passes_ = {};
};

/// Kernel that resamples `axes` of input 0 to output 0; `backward`: the transpose, from the results to the
/// elements.
template <class T, bool backward>
BlockKernel passes_kernel(const EvalSpec& spec, const std::vector<ResampledAxis>& axes) {
  const Shape& t = backward ? spec.outputs[0].shape : spec.inputs[0]->shape;
  const auto plan = std::make_shared<const AxisPasses<T>>(axes, t);
  if (plan->empty()) return copy_kernel(spec);
  return plane_kernel(spec, plan->planes(), plan->scratch(), [plan](const PlaneArgs& args) {
    backward ? plan->backward(args) : plan->forward(args);
  });
}
template <bool backward>
BlockKernel resample_kernel(const EvalSpec& spec, const std::vector<ResampledAxis>& axes) {
  return spec.outputs[0].dtype == DType::kFloat64 ? passes_kernel<double, backward>(spec, axes)
                                                  : passes_kernel<float, backward>(spec, axes);
}

}  // namespace popsr
