// Seeds and what is made of them: split_random_seed, create_random_seed.
//
// The modifier m makes (a, h) of (a, b): h is the upper half of the number that seed (a, b + m) draws.
#include <array>
#include <cstring>

#include "popsr/base/error.h"
#include "popsr/exec/block_kernel.h"
#include "popsr/ops/infer.h"
#include "popsr/ops/loops/blocks.h"
#include "popsr/ops/random/random.h"
#include "popsr/ops/registry.h"

namespace popsr {

using kernels::NoiseKey;

InputDef seed_input(std::string_view name) {
  return {.name = name, .dtypes = {DType::kUInt32}, .seed = true};
}

void check_seed(const InferContext& context, std::size_t input) {
  if (context.type(input).shape == Shape{2}) return;
  raise<ShapeError>("{}: {} is not a seed, got {}, expected u32[2]", context.name(),
                    context.op.def->inputs[input].name, describe(context, input));
}

std::uint64_t read_seed(const std::byte* seed) {
  std::array<std::uint32_t, 2> words = {};
  std::memcpy(words.data(), seed, sizeof(words));
  return (std::uint64_t{words[0]} << 32) | words[1];
}

NoiseKey drawn_key(const kernels::KernelTable& kernels, std::uint64_t seed, Drawn drawn) {
  const NoiseKey key = derive_key(kernels, kernels::kRootKey, kernels::Domain::kSeedTensor, seed);
  return derive_key(kernels, key, kernels::Domain::kDrawn, static_cast<std::uint64_t>(drawn));
}

namespace {

void write_modified(const kernels::KernelTable& kernels, const std::byte* seed, std::uint64_t modifier,
                    std::byte* out) {
  const std::uint64_t words = read_seed(seed);
  const auto first = static_cast<std::uint32_t>(words >> 32);
  const auto second = static_cast<std::uint32_t>(words + modifier);
  const std::uint64_t moved = (std::uint64_t{first} << 32) | second;
  std::uint64_t drawn = 0;
  kernels.uniform_bits(&drawn, 1, drawn_key(kernels, moved, Drawn::kSeed), 0);
  const std::array<std::uint32_t, 2> result = {first, static_cast<std::uint32_t>(drawn >> 32)};
  std::memcpy(out, result.data(), sizeof(result));
}

/// Each is an output of its own; more would be memory, not randomness.
constexpr std::int64_t kMostSeeds = 1 << 16;

OutputDef seed_output() { return {{DType::kUInt32, {2}}, {}}; }

constexpr Attr<std::int64_t> kCountOfSeeds{"n"};

std::vector<OutputDef> infer_split(const InferContext& context) {
  check_seed(context, 0);
  const std::int64_t n = context.get(kCountOfSeeds);
  if (n < 1) {
    raise<AttributeValueError>("{}: number of seeds is not positive, got {}, expected 1 or more",
                               context.name(), n);
  }
  if (n > kMostSeeds) {
    raise<AttributeValueError>("{}: too many seeds, got {}, expected at most {}", context.name(), n,
                               kMostSeeds);
  }
  return std::vector<OutputDef>(static_cast<std::size_t>(n), seed_output());
}

BlockKernel eval_split(const EvalSpec& spec) {
  return per_block([&kernels = spec.kernels, n = spec.outputs.size()](const Block& block) {
    for (std::size_t i = 0; i < n; ++i) write_modified(kernels, block.in(0), i, block.out(i));
  });
}

std::vector<OutputDef> infer_create(const InferContext& context) {
  check_seed(context, 0);
  if (num_elements(context.type(1).shape) != 1) {
    raise<ShapeError>("{}: modifier is not a scalar, got {}, expected one element", context.name(),
                      describe(context, 1));
  }
  return {seed_output()};
}

BlockKernel eval_create(const EvalSpec& spec) {
  return per_block([&kernels = spec.kernels, dtype = spec.inputs[1]->dtype](const Block& block) {
    const std::int64_t modifier = read_integer(block.in(1), dtype);
    write_modified(kernels, block.in(0), static_cast<std::uint64_t>(modifier), block.out());
  });
}

}  // namespace

std::vector<OpDef> random_seeds_ops() {
  return {
      {.name = "split_random_seed",
       .inputs = {seed_input("seed")},
       .attrs = {optional(kCountOfSeeds, 2)},
       .infer = infer_split,
       .kernel = {.eval = eval_split}},
      {.name = "create_random_seed",
       .inputs = {seed_input("seed"), {"modifier", kIntegers}},
       .infer = infer_create,
       .kernel = {.eval = eval_create}},
  };
}

}  // namespace popsr
