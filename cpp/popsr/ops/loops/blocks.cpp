#include "popsr/ops/loops/blocks.h"

#include <array>
#include <cstring>

#include "popsr/base/error.h"
#include "popsr/exec/block_kernel.h"

namespace popsr {

namespace {

constexpr std::size_t kMaxInputs = 8;

}  // namespace

std::optional<LoopNest> merge_blocks(const BlockRun& run, const LoopNest& nest,
                                     std::span<const RunInput> inputs, std::size_t output, std::int64_t bytes,
                                     bool stochastic) {
  POPSR_CHECK(inputs.size() <= kMaxInputs);
  if (run.blocks > 1 && (stochastic || run.out_stride[output] != bytes)) return std::nullopt;
  std::array<std::int64_t, kMaxInputs> strides = {};
  for (std::size_t j = 0; j < inputs.size(); ++j) {
    const auto& [input, size] = inputs[j];
    if (size != 1 && run.in_stride[input] % size != 0) return std::nullopt;
    strides[j] = run.in_stride[input] / size;
  }
  LoopNest merged = nest;
  merged.add_outer(run.blocks, {strides.data(), inputs.size()});
  return merged;
}

BlockKernel copy_kernel(const EvalSpec& spec, std::size_t input, std::size_t output) {
  const auto size = static_cast<std::int64_t>(bytes_of(spec.outputs[output]));
  return [input, output, size](const BlockRun& run) {
    if (size == 0) return;
    const auto copy = [](const Block& block, std::size_t in, std::size_t out, std::int64_t bytes) {
      std::byte* const to = block.out(out);
      const std::byte* const from = block.in(in);
      if (to != from) std::memcpy(to, from, static_cast<std::size_t>(bytes));
    };
    const bool dense = run.in_stride[input] == size && run.out_stride[output] == size;
    if (dense) return copy(Block(run, 0), input, output, run.blocks * size);
    for_each_block(run, [&](const Block& block) { copy(block, input, output, size); });
  };
}

}  // namespace popsr
