#include "popsr/ops/math/pow2scale.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "popsr/base/error.h"
#include "popsr/exec/block_kernel.h"
#include "popsr/ops/infer.h"

namespace popsr {
namespace {

constexpr std::int32_t kLeast = -32;
constexpr std::int32_t kMost = 31;

std::int32_t read_scale(const Block& block, std::size_t input) {
  std::int32_t scale = 0;
  std::memcpy(&scale, block.in(input), sizeof(scale));
  return scale;
}

}  // namespace

InputDef log2_scale_input() { return {.name = "log2_scale", .dtypes = {DType::kInt32}}; }

void require_scalar_scale(const InferContext& context, std::size_t input) {
  if (context.type(input).shape.empty()) return;
  raise<ShapeError>("{}: log2_scale is not a scalar, got {}, expected i32[]", context.name(),
                    describe(context, input));
}

BlockKernel with_checked_scale(const EvalSpec& spec, std::size_t input, BlockKernel kernel) {
  if (spec.clamp_scales) return kernel;
  return [name = spec.op.def->name, input, kernel = std::move(kernel)](const BlockRun& run) {
    for_each_block(run, [&](const Block& block) {
      const std::int32_t scale = read_scale(block, input);
      if (scale >= kLeast && scale <= kMost) return;
      raise<AttributeValueError>("{}: log2_scale is out of range, got {}, expected {} to {}", name, scale,
                                 kLeast, kMost);
    });
    kernel(run);
  };
}

double power_of_scale(double log2_scale) {
  return std::ldexp(1.0, static_cast<int>(std::clamp<double>(log2_scale, static_cast<double>(kLeast),
                                                             static_cast<double>(kMost))));
}

double block_scale(const Block& block, std::size_t input) { return power_of_scale(read_scale(block, input)); }

}  // namespace popsr
