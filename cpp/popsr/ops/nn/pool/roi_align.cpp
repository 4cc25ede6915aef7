// roi_align: averages of bilinear samples in the bins of regions, and its gradient.
//
// The mapping is the first one of ONNX and Detectron, without a shift by half a pixel: a region is its
// corners times spatial_scale, at least 1 wide and high. A sample further than 1 outside the operand is 0;
// others outside are taken at its border. Weights are made in float64; sums run over lines first, then
// columns, both ascending, and gradients over regions, bin lines and bin columns, all ascending.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "popsr/base/error.h"
#include "popsr/exec/block_kernel.h"
#include "popsr/ops/attributes.h"
#include "popsr/ops/infer.h"
#include "popsr/ops/loops/blocks.h"
#include "popsr/ops/loops/tiles.h"
#include "popsr/ops/nn/pool/taps.h"
#include "popsr/ops/registry.h"

namespace popsr {
namespace {

using Ints = std::vector<std::int64_t>;

constexpr std::size_t kT = 0, kRois = 1, kBatchIndex = 2;

constexpr Attr<Ints> kOutputSize{"output_size"};
constexpr Attr<double> kSpatialScale{"spatial_scale"};
constexpr Attr<std::int64_t> kSamplingRatio{"sampling_ratio"};

// Regions

/// Attributes, and extents of the operand [samples, channels, height, width].
struct RoiShape {
  std::int64_t samples, channels, height, width;
  std::int64_t bins_y, bins_x, regions;
  double scale;
  std::int64_t ratio;

  std::int64_t plane() const { return height * width; }
  std::int64_t bins() const { return bins_y * bins_x; }
};

RoiShape roi_shape(const Op& op, const Shape& t, std::int64_t regions) {
  const Ints& bins = op.get(kOutputSize);
  return {.samples = t[0],
          .channels = t[1],
          .height = t[2],
          .width = t[3],
          .bins_y = bins[0],
          .bins_x = bins[1],
          .regions = regions,
          .scale = op.get(kSpatialScale),
          .ratio = op.get(kSamplingRatio)};
}

/// Adds the sample at `at` along an axis of the operand.
void add_sample(Blend& blend, double at, std::int64_t extent) {
  if (!(at >= -1 && at <= static_cast<double>(extent)) || extent == 0) return;
  at = std::max(at, 0.0);
  const double low = std::floor(at);
  const auto index = static_cast<std::int64_t>(low);
  if (index >= extent - 1) return blend.add(extent - 1, 1);
  blend.add(index, 1 - (at - low));
  blend.add(index + 1, at - low);
}

/// One axis of a region: its bins, and the samples of each bin.
struct RoiAxis {
  std::vector<Blend> bins = {};
  double samples = 1;
};

RoiAxis roi_axis(double begin, double end, std::int64_t bins, std::int64_t ratio, std::int64_t extent) {
  const double bin = std::max(end - begin, 1.0) / static_cast<double>(bins);
  RoiAxis axis{.bins = std::vector<Blend>(static_cast<std::size_t>(bins)),
               .samples = ratio > 0 ? static_cast<double>(ratio) : std::ceil(bin)};
  const double step = bin / axis.samples;
  // For regions larger than the input, samples outside it are skipped.
  const double most =
      ratio > 0 ? axis.samples : std::min(axis.samples, 2.0 * static_cast<double>(extent) + 8);
  for (std::int64_t b = 0; b < bins; ++b) {
    const double start = begin + static_cast<double>(b) * bin;
    const double near = std::floor((-1 - start) / step) - 1;
    const double first = std::clamp(near, 0.0, axis.samples - most);
    for (std::int64_t s = 0; s < static_cast<std::int64_t>(most); ++s) {
      const double at = start + (first + static_cast<double>(s) + 0.5) * step;
      add_sample(axis.bins[static_cast<std::size_t>(b)], at, extent);
    }
  }
  return axis;
}

template <class T>
struct Region {
  std::int64_t sample = 0;
  bool finite = true;
  T samples = 1;  ///< Number of samples of a bin.
  AxisTaps<T> lines, columns;
};

/// `corners`: x1, y1, x2, y2.
template <class T>
Region<T> region_of(const RoiShape& shape, const double* corners, std::int64_t sample) {
  const double x1 = corners[0] * shape.scale, y1 = corners[1] * shape.scale;
  const double x2 = corners[2] * shape.scale, y2 = corners[3] * shape.scale;
  if (!std::isfinite(x2 - x1) || !std::isfinite(y2 - y1)) {
    return {.sample = sample, .finite = false, .lines = AxisTaps<T>({}), .columns = AxisTaps<T>({})};
  }
  const RoiAxis y = roi_axis(y1, y2, shape.bins_y, shape.ratio, shape.height);
  const RoiAxis x = roi_axis(x1, x2, shape.bins_x, shape.ratio, shape.width);
  return {.sample = sample,
          .samples = static_cast<T>(y.samples * x.samples),
          .lines = AxisTaps<T>(y.bins),
          .columns = AxisTaps<T>(x.bins)};
}

// Kernels

/// Operands: t or dy, regions, sample of each region.
template <class T, bool backward>
class RoiAlign {
 public:
  explicit RoiAlign(const EvalSpec& spec)
      : kernels_(spec.kernels),
        op_(spec.op.def->name),
        shape_(roi_shape(spec.op, backward ? spec.outputs[0].shape : spec.inputs[0]->shape,
                         spec.inputs[1]->shape[0])),
        dtype_(spec.outputs[0].dtype),
        index_dtype_(spec.inputs[2]->dtype),
        stochastic_(spec.stochastic && is_narrow_float(dtype_)) {}

  void operator()(const BlockRun& run) const {
    std::vector<Ints> samples;
    for_each_block(run, [&](const Block& block) { samples.push_back(samples_of(block)); });
    for_each_block(run, [&](const Block& block) {
      const std::vector<Region<T>> regions =
          regions_of(block, samples[static_cast<std::size_t>(block.index())]);
      const std::int64_t planes = shape_.samples * shape_.channels;
      const std::int64_t work =
          planes * shape_.plane() + shape_.regions * shape_.channels * shape_.bins() * 4;
      parallel_for(run.pool, planes, 1, work, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t plane = begin; plane < end; ++plane) {
          backward ? plane_grad(block, plane, regions) : plane_bins(block, plane, regions);
        }
      });
    });
  }

 private:
  std::int64_t size() const { return static_cast<std::int64_t>(size_of(dtype_)); }
  static kernels::Compute compute() {
    return sizeof(T) == sizeof(double) ? kernels::Compute::kF64 : kernels::Compute::kF32;
  }
  /// The samples that regions are in; OutOfRangeError for one that is not there.
  Ints samples_of(const Block& block) const {
    Ints samples(static_cast<std::size_t>(shape_.regions));
    load_tile(kernels_, index_dtype_, kernels::Compute::kI64, samples.data(), block.in(2), shape_.regions);
    for (const std::int64_t sample : samples) {
      if (sample >= 0 && sample < shape_.samples) continue;
      raise<OutOfRangeError>("{}: batch_index is out of range, got {}, expected 0 <= batch_index < {}", op_,
                             sample, shape_.samples);
    }
    return samples;
  }

  std::vector<Region<T>> regions_of(const Block& block, const Ints& samples) const {
    std::vector<double> corners(samples.size() * 4);
    load_tile(kernels_, dtype_, kernels::Compute::kF64, corners.data(), block.in(1), shape_.regions * 4);
    std::vector<Region<T>> regions;
    for (std::size_t r = 0; r < samples.size(); ++r) {
      regions.push_back(region_of<T>(shape_, corners.data() + r * 4, samples[r]));
    }
    return regions;
  }

  /// The bins of that plane of regions, from or to `wide`, as stored.
  std::int64_t bins_at(std::size_t region, std::int64_t channel) const {
    return (static_cast<std::int64_t>(region) * shape_.channels + channel) * shape_.bins();
  }
  T* scratch() const {
    const std::int64_t elements = shape_.plane() + shape_.width + shape_.bins();
    return static_cast<T*>(thread_scratch(static_cast<std::size_t>(elements) * sizeof(T)));
  }

  void plane_bins(const Block& block, std::int64_t plane, const std::vector<Region<T>>& regions) const {
    T *const wide = scratch(), *const line = wide + shape_.plane(), *const bins = line + shape_.width;
    bool loaded = false;
    for (std::size_t r = 0; r < regions.size(); ++r) {
      if (regions[r].sample != plane / shape_.channels) continue;
      if (!std::exchange(loaded, true)) {
        load_tile(kernels_, dtype_, compute(), wide, block.in(0) + plane * shape_.plane() * size(),
                  shape_.plane());
      }
      average(regions[r], wide, line, bins);
      const std::int64_t at = bins_at(r, plane % shape_.channels);
      store_tile(kernels_, compute(), dtype_, block.out() + at * size(), bins, nullptr, shape_.bins(),
                 block.key(stochastic_), static_cast<std::uint64_t>(at));
    }
  }

  void average(const Region<T>& region, const T* plane, T* line, T* bins) const {
    if (!region.finite) {
      std::fill_n(bins, shape_.bins(), std::numeric_limits<T>::quiet_NaN());
      return;
    }
    for (std::int64_t y = 0; y < shape_.bins_y; ++y) {
      region.lines.blend(y, plane, line, shape_.width);
      for (std::int64_t x = 0; x < shape_.bins_x; ++x) {
        T* const bin = bins + y * shape_.bins_x + x;
        region.columns.blend(x, line, bin, 1);
        *bin /= region.samples;
      }
    }
  }

  void plane_grad(const Block& block, std::int64_t plane, const std::vector<Region<T>>& regions) const {
    T *const wide = scratch(), *const line = wide + shape_.plane(), *const bins = line + shape_.width;
    std::fill_n(wide, shape_.plane(), T{0});
    for (std::size_t r = 0; r < regions.size(); ++r) {
      if (regions[r].sample != plane / shape_.channels || !regions[r].finite) continue;
      const std::int64_t at = bins_at(r, plane % shape_.channels);
      load_tile(kernels_, dtype_, compute(), bins, block.in(0) + at * size(), shape_.bins());
      distribute(regions[r], bins, line, wide);
    }
    const std::int64_t at = plane * shape_.plane();
    store_tile(kernels_, compute(), dtype_, block.out() + at * size(), wide, nullptr, shape_.plane(),
               block.key(stochastic_), static_cast<std::uint64_t>(at));
  }

  void distribute(const Region<T>& region, T* bins, T* line, T* plane) const {
    for (std::int64_t y = 0; y < shape_.bins_y; ++y) {
      std::fill_n(line, shape_.width, T{0});
      for (std::int64_t x = 0; x < shape_.bins_x; ++x) {
        T* const bin = bins + y * shape_.bins_x + x;
        *bin /= region.samples;
        region.columns.scatter(x, bin, line, 1);
      }
      region.lines.scatter(y, line, plane, shape_.width);
    }
  }

  const kernels::KernelTable& kernels_;
  std::string_view op_;
  RoiShape shape_;
  DType dtype_, index_dtype_;
  bool stochastic_;
};

template <bool backward>
BlockKernel eval_roi_align(const EvalSpec& spec) {
  if (spec.outputs[0].dtype == DType::kFloat64) return RoiAlign<double, backward>(spec);
  return RoiAlign<float, backward>(spec);
}

// Definitions

void check_attrs(const Op& op) {
  const Ints& bins = op.get(kOutputSize);
  if (bins.size() != 2 || bins[0] < 1 || bins[1] < 1) {
    raise<AttributeValueError>(
        "{}: output_size is not a height and a width, got {}, expected two positive "
        "numbers",
        op.def->name, to_string(bins));
  }
  const double scale = op.get(kSpatialScale);
  if (!(scale > 0) || std::isinf(scale)) {
    raise<AttributeValueError>("{}: spatial_scale is out of range, got {}, expected a positive number",
                               op.def->name, scale);
  }
  const std::int64_t ratio = op.get(kSamplingRatio);
  if (ratio < 0 || ratio > std::numeric_limits<std::int32_t>::max()) {
    raise<AttributeValueError>("{}: sampling_ratio is out of range, got {}, expected 0 to {}", op.def->name,
                               ratio, std::numeric_limits<std::int32_t>::max());
  }
}

std::vector<OutputDef> infer_roi_align(const InferContext& context) {
  require_equal_dtypes(context, kT, kRois);
  const TensorType& t = context.type(kT);
  const Shape &rois = context.type(kRois).shape, &samples = context.type(kBatchIndex).shape;
  if (t.shape.size() != 4) {
    raise<ShapeError>("{}: operand is not an image, got {}, expected [samples, channels, height, width]",
                      context.name(), describe(context, 0));
  }
  if (rois.size() != 2 || rois[1] != 4) {
    raise<ShapeError>("{}: rois are not rows of corners, got {}, expected shape [regions, 4]", context.name(),
                      describe(context, kRois));
  }
  if (samples != Shape{rois[0]}) {
    raise<ShapeError>("{}: batch_index does not match rois, got {}, expected shape [{}]", context.name(),
                      describe(context, kBatchIndex), rois[0]);
  }
  check_attrs(context.op);
  const Ints& bins = context.get(kOutputSize);
  return {{{t.dtype, {rois[0], t.shape[1], bins[0], bins[1]}}, {}}};
}

std::vector<AttrDef> roi_attrs() {
  return {required(kOutputSize), required(kSpatialScale), required(kSamplingRatio)};
}

/// Regions have no gradient.
GradValue roi_align_grad(Grad& g) {
  std::vector<NamedAttribute> attrs = g.same(roi_attrs());
  attrs.push_back(kShape(g.in_type(kT).shape));
  return g.call("roi_align_grad", {g.dy(), g.x(kRois), g.x(kBatchIndex)}, std::move(attrs));
}

}  // namespace

std::vector<OpDef> roi_align_ops() {
  std::vector<AttrDef> grad_attrs = roi_attrs();
  grad_attrs.push_back(required(kShape));
  return {
      {.name = "roi_align",
       .inputs = {{"t", kFloating}, {"rois", kFloating}, {"batch_index", kIntegers}},
       .attrs = roi_attrs(),
       .infer = infer_roi_align,
       .kernel = {.eval = eval_roi_align<false>},
       .grad = per_input({roi_align_grad}),
       .numerics = kRoundsOnce},
      {.name = "roi_align_grad",
       .inputs = {{"dy", kFloating}, {"rois", kFloating}, {"batch_index", kIntegers}},
       .attrs = std::move(grad_attrs),
       .infer = of_given_shape,
       .kernel = {.eval = eval_roi_align<true>},
       .numerics = kRoundsOnce,
       .program = {.internal = true}},
  };
}

}  // namespace popsr
