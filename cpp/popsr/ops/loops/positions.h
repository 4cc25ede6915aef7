// Indices that an op reads before it writes anything.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

#include "popsr/base/error.h"
#include "popsr/exec/block_kernel.h"
#include "popsr/ir/op_def.h"
#include "popsr/ops/loops/blocks.h"
#include "popsr/ops/loops/tiles.h"

namespace popsr {

/// The indices of all blocks of a run, which were found to be in range; -1: out of range, where that is
/// allowed.
class Positions {
 public:
  /// Of an input of integers, along an axis of that extent.
  Positions(const EvalSpec& spec, std::size_t input, std::int64_t extent, bool may_be_outside)
      : kernels_(spec.kernels),
        op_(spec.op.def->name),
        input_(input),
        dtype_(spec.inputs[input]->dtype),
        elements_(num_elements(spec.inputs[input]->shape)),
        extent_(extent),
        may_be_outside_(may_be_outside) {}

  struct Loaded {
    std::vector<std::int64_t> values = {};
    std::int64_t block_step = 0;

    const std::int64_t* of(const Block& block) const { return values.data() + block.index() * block_step; }
  };
  Loaded load(const BlockRun& run) const {
    const std::int64_t blocks =
        run.in_stride[input_] == 0 ? std::min<std::int64_t>(run.blocks, 1) : run.blocks;
    Loaded loaded{.values = std::vector<std::int64_t>(static_cast<std::size_t>(blocks * elements_)),
                  .block_step = run.in_stride[input_] == 0 ? 0 : elements_};
    for (std::int64_t b = 0; b < blocks && elements_ > 0; ++b) {
      // Unsigned numbers from 2^63 on come out negative: out of range either way.
      load_tile(kernels_, dtype_, kernels::Compute::kI64, loaded.values.data() + b * elements_,
                Block(run, b).in(input_), elements_);
    }
    for (std::int64_t& value : loaded.values) {
      if (value >= 0 && value < extent_) continue;
      if (!may_be_outside_) {
        raise<OutOfRangeError>("{}: index is out of range, got {}, expected 0 <= index < {}", op_, value,
                               extent_);
      }
      value = -1;
    }
    return loaded;
  }

 private:
  const kernels::KernelTable& kernels_;
  std::string_view op_;
  std::size_t input_;
  DType dtype_;
  std::int64_t elements_, extent_;
  bool may_be_outside_;
};

}  // namespace popsr
