// Loop over the blocks of a run. Kernels see one block and a range of its units, or all blocks as one flat
// nest: how blocks are merged and shared among threads is decided here.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <utility>

#include "popsr/base/cost.h"
#include "popsr/base/layout/loop_nest.h"
#include "popsr/base/threads/thread_pool.h"
#include "popsr/exec/block_kernel.h"
#include "popsr/kernels/contract/noise_key.h"

namespace popsr {

/// Calls body(begin, end) on fixed parts of [0, total), cut at multiples of `grain`; on the calling thread
/// alone if `work`, the total, is small.
template <class Body>
void parallel_for(ThreadPool& pool, std::int64_t total, std::int64_t grain, std::int64_t work,
                  const Body& body, const ThreadCost& cost = kElementWork) {
  const std::int64_t pieces = (total + grain - 1) / grain;
  const std::int64_t parts = threads_for(cost, work, pieces, pool.threads());
  if (parts <= 1) {
    if (total > 0) body(std::int64_t{0}, total);
    return;
  }
  pool.run(static_cast<int>(parts), [&](int part) {
    const std::int64_t begin = pieces * part / parts * grain;
    const std::int64_t end = std::min(total, pieces * (part + 1) / parts * grain);
    if (begin < end) body(begin, end);
  });
}

/// Address of an input (output) of one block of a BlockRun or a CollectiveRun.
template <class Run, std::integral Index>
const std::byte* in_block(const Run& run, std::size_t input, Index block) {
  return run.in[input] + static_cast<std::ptrdiff_t>(block) * run.in_stride[input];
}
template <class Run, std::integral Index>
std::byte* out_block(const Run& run, std::size_t output, Index block) {
  return run.out[output] + static_cast<std::ptrdiff_t>(block) * run.out_stride[output];
}

/// Operands of one block of a run.
class Block {
 public:
  Block(const BlockRun& run, std::int64_t index) : run_(run), index_(index) {}

  const BlockRun& run() const { return run_; }
  std::int64_t index() const { return index_; }
  const std::byte* in(std::size_t input) const { return in_block(run_, input, index_); }
  std::byte* out(std::size_t output = 0) const { return out_block(run_, output, index_); }
  /// Noise key of the output, or null if `stochastic` is false.
  const kernels::NoiseKey* key(bool stochastic, std::size_t output = 0) const {
    return stochastic ? &run_.noise[output][index_] : nullptr;
  }

 private:
  const BlockRun& run_;
  std::int64_t index_;
};

/// Calls body(block) for the blocks in ascending order, on the calling thread.
template <class Body>
void for_each_block(const BlockRun& run, const Body& body) {
  for (std::int64_t b = 0; b < run.blocks; ++b) body(Block(run, b));
}

/// Makes a kernel that calls body(block) for each block.
template <class Body>
BlockKernel per_block(Body body) {
  return [body = std::move(body)](const BlockRun& run) { for_each_block(run, body); };
}

/// Split of the units of one block, such as its elements, rows or tiles, among threads.
struct BlockUnits {
  std::int64_t units = 1;
  std::int64_t grain = 1;  ///< Multiples at which parts are cut, counted over all blocks.
  std::int64_t work = 0;   ///< Work of all units, in kElementWork.
};

/// Calls body(block, begin, end) on ranges of the units of each block. `make` gives each thread its own body.
template <class Make>
void for_each_range_with(const BlockRun& run, const BlockUnits& of, const Make& make) {
  parallel_for(run.pool, run.blocks * of.units, of.grain, run.blocks * of.work,
               [&](std::int64_t begin, std::int64_t end) {
                 auto&& body = make();
                 for (std::int64_t b = begin / of.units; b * of.units < end; ++b) {
                   const std::int64_t first = b * of.units;
                   body(Block(run, b), std::max<std::int64_t>(begin - first, 0),
                        std::min(end - first, of.units));
                 }
               });
}
template <class Body>
void for_each_range(const BlockRun& run, const BlockUnits& of, const Body& body) {
  for_each_range_with(run, of, [&]() -> const Body& { return body; });
}

/// Calls body(block) for the blocks, shared among threads; `work` is the work of one block.
template <class Body>
void share_blocks(const BlockRun& run, std::int64_t work, const Body& body) {
  for_each_range(run, {.work = work}, [&](const Block& block, std::int64_t, std::int64_t) { body(block); });
}

/// Calls body(block, first, n) for the tiles of kTile elements of each block, which has `elements` of them.
template <class Make>
void for_each_tile_with(const BlockRun& run, std::int64_t elements, std::int64_t work, const Make& make) {
  const std::int64_t tiles = (elements + kTile - 1) / kTile;
  for_each_range_with(run, {.units = tiles, .work = work}, [&] {
    return [elements, body = make()](const Block& block, std::int64_t begin, std::int64_t end) mutable {
      for (std::int64_t tile = begin; tile < end; ++tile) {
        const std::int64_t first = tile * kTile;
        body(block, first, std::min(kTile, elements - first));
      }
    };
  });
}
template <class Body>
void for_each_tile(const BlockRun& run, std::int64_t elements, std::int64_t work, const Body& body) {
  for_each_tile_with(run, elements, work, [&] { return std::cref(body); });
}

/// An input as an array of a nest, and the bytes of one unit of its strides.
struct RunInput {
  std::size_t input;
  std::int64_t size;
};
/// Nest of one block inside a loop over the blocks, so that all of them are one flat range. nullopt if their
/// inputs or their output, of `bytes` each, are not at constant distances, or each block has its own noise.
std::optional<LoopNest> merge_blocks(const BlockRun& run, const LoopNest& nest,
                                     std::span<const RunInput> inputs, std::size_t output, std::int64_t bytes,
                                     bool stochastic);

/// Kernel: output = the bytes of one input of the same size.
BlockKernel copy_kernel(const EvalSpec& spec, std::size_t input = 0, std::size_t output = 0);

}  // namespace popsr
