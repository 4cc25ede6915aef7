// quantize_linear and dequantize_linear: whole numbers that stand for (number - zero point) *
// scale, in one pass.
//
// Quotients are computed in the type of the scale, float32 for narrow floats, rounded to even, moved by the
// zero point and saturated. Scales hold for the whole tensor, for one place of an axis, or for a block of
// places.
#include <algorithm>
#include <limits>
#include <utility>

#include "popsr/base/error.h"
#include "popsr/exec/block_kernel.h"
#include "popsr/ops/attributes.h"
#include "popsr/ops/infer.h"
#include "popsr/ops/loops/blocks.h"
#include "popsr/ops/loops/tiles.h"
#include "popsr/ops/registry.h"

namespace popsr {
namespace {

constexpr std::size_t kNumbersIn = 0, kScaleIn = 1, kZeroIn = 2;  ///< Inputs.

constexpr Attr<std::int64_t> kScaleBlock{"block_size"};
constexpr Attr<std::int64_t> kQuantizedAxis{"axis"};

constexpr DTypeSet kShortIntegers =
    DTypeSet{DType::kInt8} | DTypeSet{DType::kUInt8} | DTypeSet{DType::kInt16} | DTypeSet{DType::kUInt16};
constexpr DTypeSet kQuantized = kShortIntegers | DTypeSet{DType::kInt32};

// Shapes

bool has_one_scale(const Shape& scale) { return scale.empty() || scale == Shape{1}; }

std::int64_t scale_blocks(std::int64_t extent, std::int64_t block) { return (extent + block - 1) / block; }

/// ShapeError unless the scales are those of a tensor, of an axis, or of blocks.
void check_scales(const InferContext& context) {
  const Shape& t = context.type(kNumbersIn).shape;
  const Shape& scale = context.type(kScaleIn).shape;
  if (context.has(kZeroIn)) require_equal_shapes(context, kScaleIn, kZeroIn);
  const std::int64_t block = context.get(kScaleBlock);
  if (block < 0) {
    raise<AttributeValueError>("{}: block_size is negative, got {}, expected 0 or more", context.name(),
                               block);
  }
  if (block == 0 && has_one_scale(scale)) return;
  const auto axis =
      static_cast<std::size_t>(normalize_axis(context.name(), context.get(kQuantizedAxis), t.size()));
  Shape expected{t[axis]};
  if (block > 0) {
    expected = t;
    expected[axis] = scale_blocks(t[axis], block);
  }
  if (scale == expected) return;
  raise<ShapeError>("{}: scales do not match, got {} for {}, expected shape {}{}", context.name(),
                    describe(context, kScaleIn), describe(context, kNumbersIn), to_string(expected),
                    block > 0 ? "" : " or one number");
}

// Runs of numbers with their scales

/// The tensor as equal runs; runs of a cut axis are shorter at its end.
class ScaledRuns {
 public:
  ScaledRuns(const Op& op, const Shape& t, const Shape& scale) {
    const std::int64_t elements = num_elements(t), block = op.get(kScaleBlock);
    if (block == 0 && has_one_scale(scale)) {
      number_ = (elements + kTile - 1) / kTile;
      inner_ = axis_ = 1;
      count_ = kTile;
      elements_ = elements;
      return;
    }
    const auto axis =
        static_cast<std::size_t>(normalize_axis(op.def->name, op.get(kQuantizedAxis), t.size()));
    const auto at = t.begin() + static_cast<std::ptrdiff_t>(axis);
    elements_ = elements;
    axis_ = *at;
    inner_ = num_elements(Shape(at + 1, t.end()));
    block_ = block;
    per_axis_ = block == 0;
    along_ = inner_ == 1;
    count_ = along_ ? axis_ : inner_;
    number_ = count_ > 0 ? elements / count_ : 0;
  }

  std::int64_t number() const { return number_; }
  std::int64_t elements() const { return elements_; }
  std::int64_t longest() const { return std::min(count_, elements_); }

  /// Calls body(first element, n, number of its first scale, step, places of one scale).
  template <class Body>
  void run(std::int64_t number, const Body& body) const {
    const std::int64_t first = number * count_, n = std::min(count_, elements_ - first);
    if (!along_ && !per_axis_ && block_ == 0) return body(first, n, 0, 0);
    if (along_ && per_axis_) return body(first, n, 0, 1);
    if (per_axis_) return body(first, n, number % axis_, 0);
    const std::int64_t blocks = scale_blocks(axis_, block_);
    if (!along_) {
      return body(first, n, (number / axis_ * blocks + number % axis_ / block_) * inner_, 1);
    }
    for (std::int64_t b = 0; b < blocks; ++b) {
      body(first + b * block_, std::min(block_, axis_ - b * block_), number * blocks + b, 0);
    }
  }

 private:
  std::int64_t number_ = 0, elements_ = 0, axis_ = 1, inner_ = 1, block_ = 0, count_ = 1;
  bool per_axis_ = false, along_ = false;
};

/// Scales and zero points in the type of the arithmetic, by number.
template <class T>
struct ScaleParameters {
  std::vector<T> scales = {}, zeros = {};
};

template <class T>
class ScaleWalk {
 public:
  explicit ScaleWalk(const EvalSpec& spec)
      : kernels_(spec.kernels),
        runs_(spec.op, spec.inputs[kNumbersIn]->shape, spec.inputs[kScaleIn]->shape),
        in_(spec.inputs[kNumbersIn]->dtype),
        scale_(spec.inputs[kScaleIn]->dtype),
        out_(spec.outputs[0].dtype),
        scales_(num_elements(spec.inputs[kScaleIn]->shape)),
        has_zero_(spec.inputs.size() > kZeroIn && spec.inputs[kZeroIn].has_value()),
        zero_(has_zero_ ? spec.inputs[kZeroIn]->dtype : in_),
        stochastic_(spec.stochastic && is_narrow_float(out_)) {}

  /// body(parameters, tile of the operand, n, number of the first scale, step, first element, block)
  template <class Body>
  void operator()(const BlockRun& run, const Body& body) const {
    for_each_block(run, [&](const Block& block) {
      const ScaleParameters<T> parameters = load(block);
      parallel_for(
          run.pool, runs_.number(), 1, runs_.elements() * 2, [&](std::int64_t begin, std::int64_t end) {
            for (std::int64_t r = begin; r < end; ++r) {
              runs_.run(r, [&](std::int64_t first, std::int64_t n, std::int64_t scale, std::int64_t step) {
                for (std::int64_t done = 0; done < n; done += kTile) {
                  const std::int64_t count = std::min(kTile, n - done);
                  alignas(64) T tile[kTile];
                  load_tile(kernels_, in_, kComputeOf<T>, tile,
                            block.in(kNumbersIn) + (first + done) * bytes(in_), count);
                  const std::int64_t at = scale + done * step;
                  const T* const zeros = has_zero_ ? parameters.zeros.data() + at : nullptr;
                  body(block, first + done, tile, parameters.scales.data() + at, zeros, step, count);
                }
              });
            }
          });
    });
  }

  static std::int64_t bytes(DType dtype) { return static_cast<std::int64_t>(size_of(dtype)); }
  DType out() const { return out_; }
  void store(const Block& block, std::int64_t first, const T* tile, std::int64_t n) const {
    store_tile(kernels_, kComputeOf<T>, out_, block.out() + first * bytes(out_), tile, nullptr, n,
               block.key(stochastic_), static_cast<std::uint64_t>(first));
  }

 private:
  ScaleParameters<T> load(const Block& block) const {
    ScaleParameters<T> made{.scales = std::vector<T>(static_cast<std::size_t>(scales_))};
    load_tile(kernels_, scale_, kComputeOf<T>, made.scales.data(), block.in(kScaleIn), scales_);
    if (!has_zero_) return made;
    made.zeros.resize(static_cast<std::size_t>(scales_));
    load_tile(kernels_, zero_, kComputeOf<T>, made.zeros.data(), block.in(kZeroIn), scales_);
    return made;
  }

  const kernels::KernelTable& kernels_;
  ScaledRuns runs_;
  DType in_, scale_, out_;
  std::int64_t scales_;
  bool has_zero_;
  DType zero_;
  bool stochastic_;
};

// Quantize

/// Rounds a number of magnitude up to 2^17 to an integer, ties to even: the added constant has the last bit
/// at 1.
float rounded_to_even(float x) { return (x + 12582912.0F) - 12582912.0F; }
double rounded_to_even(double x) { return (x + 6755399441055744.0) - 6755399441055744.0; }

template <class T, class Q>
void quantized(Q* to, const T* from, const T* scales, const T* zeros, std::int64_t step, std::int64_t n) {
  constexpr T kLow = std::numeric_limits<Q>::min(), kHigh = std::numeric_limits<Q>::max();
  for (std::int64_t i = 0; i < n; ++i) {
    const T x = from[i] / scales[i * step], zero = zeros == nullptr ? T{0} : zeros[i * step];
    const T low = kLow - zero, high = kHigh - zero;
    T inside = x < low ? low : x;
    inside = inside > high ? high : inside;
    inside = x == x ? inside : -zero;  // NaN becomes 0, as by "cast".
    to[i] = static_cast<Q>(static_cast<std::int32_t>(rounded_to_even(inside) + zero));
  }
}

template <class T, class Q>
void quantized_at(std::byte* to, const T* from, const T* scales, const T* zeros, std::int64_t step,
                  std::int64_t n) {
  Q* const out = reinterpret_cast<Q*>(to);
  if (step == 0) return quantized(out, from, scales, zeros, 0, n);
  quantized(out, from, scales, zeros, 1, n);
}

template <class T>
auto quantizer_to(DType dtype) {
  switch (dtype) {
    case DType::kInt8:
      return quantized_at<T, std::int8_t>;
    case DType::kUInt8:
      return quantized_at<T, std::uint8_t>;
    case DType::kInt16:
      return quantized_at<T, std::int16_t>;
    default:
      return quantized_at<T, std::uint16_t>;
  }
}

template <class T>
BlockKernel quantize_kernel(const EvalSpec& spec) {
  return [walk = ScaleWalk<T>(spec), to = quantizer_to<T>(spec.outputs[0].dtype)](const BlockRun& run) {
    walk(run, [&](const Block& block, std::int64_t first, const T* tile, const T* scales, const T* zeros,
                  std::int64_t step, std::int64_t n) {
      to(block.out() + first * ScaleWalk<T>::bytes(walk.out()), tile, scales, zeros, step, n);
    });
  };
}

BlockKernel eval_quantize(const EvalSpec& spec) {
  return spec.inputs[kScaleIn]->dtype == DType::kFloat64 ? quantize_kernel<double>(spec)
                                                         : quantize_kernel<float>(spec);
}

std::vector<OutputDef> infer_quantize(const InferContext& context) {
  const DType to = context.get(kDataType);
  if (!kShortIntegers.contains(to)) {
    raise<DTypeError>("{}: wrong data_type, got {}, expected int8, uint8, int16 or uint16", context.name(),
                      info(to).name);
  }
  if (context.has(kZeroIn) && context.type(kZeroIn).dtype != to) {
    raise<DTypeError>("{}: zero_point has the wrong dtype, got {}, expected {}", context.name(),
                      describe(context, kZeroIn), info(to).name);
  }
  check_scales(context);
  return {{{to, context.type(kNumbersIn).shape}, {}}};
}

// Dequantize

template <class T>
void dequantized(T* tile, const T* from, const T* scales, const T* zeros, std::int64_t step, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    tile[i] = (zeros == nullptr ? from[i] : from[i] - zeros[i * step]) * scales[i * step];
  }
}

template <class T>
BlockKernel dequantize_kernel(const EvalSpec& spec) {
  return [walk = ScaleWalk<T>(spec)](const BlockRun& run) {
    walk(run, [&](const Block& block, std::int64_t first, const T* tile, const T* scales, const T* zeros,
                  std::int64_t step, std::int64_t n) {
      alignas(64) T made[kTile];
      step == 0 ? dequantized(made, tile, scales, zeros, 0, n) : dequantized(made, tile, scales, zeros, 1, n);
      walk.store(block, first, made, n);
    });
  };
}

BlockKernel eval_dequantize(const EvalSpec& spec) {
  return spec.outputs[0].dtype == DType::kFloat64 ? dequantize_kernel<double>(spec)
                                                  : dequantize_kernel<float>(spec);
}

std::vector<OutputDef> infer_dequantize(const InferContext& context) {
  if (context.has(kZeroIn)) require_equal_dtypes(context, kNumbersIn, kZeroIn);
  check_scales(context);
  return {{{context.type(kScaleIn).dtype, context.type(kNumbersIn).shape}, {}}};
}

std::vector<AttrDef> scale_layout_attrs() { return {optional(kQuantizedAxis, 1), optional(kScaleBlock, 0)}; }

}  // namespace

std::vector<OpDef> quantize_ops() {
  std::vector<AttrDef> attrs = scale_layout_attrs();
  attrs.insert(attrs.begin(), optional(kDataType, DType::kUInt8));
  return {
      {.name = "quantize_linear",
       .inputs = {{"t", kFloating},
                  {"scale", kFloating},
                  {.name = "zero_point", .dtypes = kShortIntegers, .optional = true}},
       .attrs = std::move(attrs),
       .infer = infer_quantize,
       .kernel = {.eval = eval_quantize}},
      {.name = "dequantize_linear",
       .inputs = {{"t", kQuantized},
                  {"scale", kFloating},
                  {.name = "zero_point", .dtypes = kQuantized, .optional = true}},
       .attrs = scale_layout_attrs(),
       .infer = infer_dequantize,
       .kernel = {.eval = eval_dequantize},
       .numerics = kRoundsOnce},
  };
}

}  // namespace popsr
