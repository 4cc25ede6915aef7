// random_uniform and random_normal: tensors drawn from a seed (random.h), computed in double and rounded once
// to nearest. Stochastic rounding leaves them alone: the values belong to the seed.
//
// uniform: low + (high - low) * u with u = (U div 2^11) / 2^53, not below the least and not above the
// greatest number of the dtype in [low, high). normal, Box and Muller: elements 2j and 2j+1 are mean + std *
// r cos(2 pi v) and mean + std * r sin(2 pi v), r = sqrt(-2 ln w), with w = (U + 1) / 2^64 of element 2j and
// v = (U div 2^11) / 2^53 of element 2j+1. All 64 bits make w, so the tails are right to 9.4 deviations.
#include <algorithm>
#include <array>
#include <cmath>

#include "popsr/base/error.h"
#include "popsr/base/layout/shape.h"
#include "popsr/exec/block_kernel.h"
#include "popsr/ops/attributes.h"
#include "popsr/ops/infer.h"
#include "popsr/ops/loops/blocks.h"
#include "popsr/ops/loops/tiles.h"
#include "popsr/ops/random/random.h"
#include "popsr/ops/registry.h"

namespace popsr {

namespace {

using kernels::Compute;
using kernels::ElementwiseOp;
using kernels::KernelTable;

constexpr Attr<double> kLow{"low"};
constexpr Attr<double> kHigh{"high"};
constexpr Attr<double> kMean{"mean"};
constexpr Attr<double> kStd{"std"};

using Bits = std::array<std::uint64_t, kTile>;
using Doubles = std::array<double, kTile>;

/// values = n numbers made of the bits of as many elements, or of one more when n is odd.
struct Law {
  void (*draw)(const KernelTable& kernels, double* values, const Bits& bits, std::int64_t n, const Law& law);
  Drawn drawn;
  double start, factor;    ///< low and high - low; mean and std.
  double least, greatest;  ///< Limits of the values.
};

/// bits div 2^shift of every `step`-th element, to nearest.
void to_doubles(const KernelTable& kernels, double* to, const Bits& bits, std::size_t first, std::size_t step,
                int shift, std::int64_t n) {
  alignas(64) Bits some = {};
  for (std::size_t i = 0; i < static_cast<std::size_t>(n); ++i) some[i] = bits[first + step * i] >> shift;
  kernels.cast[static_cast<int>(Compute::kU64)][static_cast<int>(Compute::kF64)](to, some.data(), n);
}

void draw_uniform(const KernelTable& kernels, double* values, const Bits& bits, std::int64_t n,
                  const Law& law) {
  to_doubles(kernels, values, bits, 0, 1, 11, n);
  for (std::int64_t i = 0; i < n; ++i) {
    const double value = law.start + law.factor * (values[i] * 0x1p-53);
    values[i] = std::min(std::max(value, law.least), law.greatest);
  }
}

void draw_normal(const KernelTable& kernels, double* values, const Bits& bits, std::int64_t n,
                 const Law& law) {
  const std::int64_t pairs = (n + 1) / 2;
  alignas(64) Doubles radius, angle, cosine, sine;
  const auto apply = [&](ElementwiseOp ew, double* to, const double* from) {
    const std::array<const void*, 1> operands = {from};
    kernels.elementwise(ew, Compute::kF64)(to, nullptr, operands.data(), pairs, nullptr);
  };
  to_doubles(kernels, radius.data(), bits, 0, 2, 0, pairs);
  to_doubles(kernels, angle.data(), bits, 1, 2, 11, pairs);
  for (std::size_t j = 0; j < static_cast<std::size_t>(pairs); ++j) {
    radius[j] = (radius[j] + 1.0) * 0x1p-64;
    angle[j] = angle[j] * 0x1p-53 * 6.28318530717958647692;
  }
  apply(ElementwiseOp::kLog, radius.data(), radius.data());
  for (std::int64_t j = 0; j < pairs; ++j) radius[static_cast<std::size_t>(j)] *= -2.0;
  apply(ElementwiseOp::kSqrt, radius.data(), radius.data());
  apply(ElementwiseOp::kCos, cosine.data(), angle.data());
  apply(ElementwiseOp::kSin, sine.data(), angle.data());
  for (std::int64_t i = 0; i < n; ++i) {
    const auto j = static_cast<std::size_t>(i / 2);
    values[i] = law.start + law.factor * (radius[j] * (i % 2 == 0 ? cosine[j] : sine[j]));
  }
}

/// The op as a kernel, tile by tile.
class Draws {
 public:
  Draws(const EvalSpec& spec, const Law& law)
      : kernels_(spec.kernels),
        law_(law),
        dtype_(spec.outputs[0].dtype),
        elements_(num_elements(spec.outputs[0].shape)) {}

  void operator()(const BlockRun& run) const {
    for_each_tile(run, elements_, elements_ * 8,
                  [this](const Block& block, std::int64_t first, std::int64_t n) { tile(block, first, n); });
  }

 private:
  void tile(const Block& block, std::int64_t first, std::int64_t n) const {
    const std::uint64_t seed = read_seed(block.in(0));
    alignas(64) Bits bits;
    alignas(64) Doubles values;
    kernels_.uniform_bits(bits.data(), n + n % 2, drawn_key(kernels_, seed, law_.drawn),
                          static_cast<std::uint64_t>(first));
    law_.draw(kernels_, values.data(), bits, n, law_);
    store_tile(kernels_, Compute::kF64, dtype_,
               block.out() + first * static_cast<std::int64_t>(size_of(dtype_)), values.data(), nullptr, n,
               nullptr, 0);
  }

  const KernelTable& kernels_;
  Law law_;
  DType dtype_;
  std::int64_t elements_;
};

// Bounds in a dtype

/// Distance of the numbers of the dtype around v.
double spacing(DType dtype, double v) {
  const FloatFormat format = format_of(dtype);
  const int least = least_exponent(format);
  int exponent = 0;
  std::frexp(v, &exponent);
  return std::ldexp(1.0, v == 0 ? least : std::max(exponent - info(format).precision, least));
}

Law uniform_law(const Op& op, DType dtype) {
  const double low = op.get(kLow), high = op.get(kHigh);
  const double below = std::nextafter(high, -HUGE_VAL);
  const double least = std::ceil(low / spacing(dtype, low)) * spacing(dtype, low);
  const double greatest = std::floor(below / spacing(dtype, below)) * spacing(dtype, below);
  return {draw_uniform, Drawn::kUniform, low, high - low, least, greatest};
}

Law normal_law(const Op& op, DType) {
  return {draw_normal, Drawn::kNormal, op.get(kMean), op.get(kStd), 0, 0};
}

template <Law (*law)(const Op&, DType)>
BlockKernel eval_random(const EvalSpec& spec) {
  return Draws(spec, law(spec.op, spec.outputs[0].dtype));
}

// Definitions

/// The output, from attributes "shape" and "dtype".
OutputDef random_output(const InferContext& context) {
  check_seed(context, 0);
  const DType dtype = context.get(kDType);
  if (!kFloating.contains(dtype)) {
    raise<DTypeError>(
        "{}: dtype is not floating, got {}, expected one of float16, bfloat16, float32, float64",
        context.name(), info(dtype).name);
  }
  const Shape& shape = context.get(kShape);
  if (std::ranges::any_of(shape, [](std::int64_t extent) { return extent < 0; })) {
    raise<ShapeError>("{}: negative extent, got {}, expected 0 or more", context.name(), to_string(shape));
  }
  return {{dtype, shape}, {}};
}

std::vector<OutputDef> infer_uniform(const InferContext& context) {
  const OutputDef output = random_output(context);
  const double low = context.get(kLow), high = context.get(kHigh);
  const DType dtype = output.type.dtype;
  if (!std::isfinite(high - low) || std::max(std::fabs(low), std::fabs(high)) > greatest(format_of(dtype))) {
    raise<AttributeValueError>(
        "{}: range is not finite in {}, got low={} and high={}, expected finite bounds", context.name(),
        info(dtype).name, low, high);
  }
  const Law law = uniform_law(context.op, dtype);
  if (!(low < high && law.least <= law.greatest)) {
    raise<AttributeValueError>("{}: range holds no number of {}, got low={} and high={}, expected low < high",
                               context.name(), info(dtype).name, low, high);
  }
  return {output};
}

std::vector<OutputDef> infer_normal(const InferContext& context) {
  const OutputDef output = random_output(context);
  const double mean = context.get(kMean), std = context.get(kStd);
  if (!std::isfinite(mean)) {
    raise<AttributeValueError>("{}: mean is not finite, got {}, expected a finite number", context.name(),
                               mean);
  }
  if (!(std::isfinite(std) && std >= 0)) {
    raise<AttributeValueError>("{}: std is not a deviation, got {}, expected a finite number of at least 0",
                               context.name(), std);
  }
  return {output};
}

OpDef random_op(std::string_view name, const Attr<double>& first, const Attr<double>& second, InferFn infer,
                EvalFn eval) {
  return {.name = name,
          .inputs = {seed_input("seed_tensor")},
          .attrs = {required(kShape), optional(first, 0.0), optional(second, 1.0),
                    optional(kDType, DType::kFloat32)},
          .infer = infer,
          .kernel = {.eval = eval}};
}

}  // namespace

std::vector<OpDef> random_ops() {
  return {
      random_op("random_uniform", kLow, kHigh, infer_uniform, eval_random<uniform_law>),
      random_op("random_normal", kMean, kStd, infer_normal, eval_random<normal_law>),
  };
}

}  // namespace popsr
