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
  struct Rules {
    bool may_be_outside = false;
    bool from_end = false;  ///< Indices below 0 count from the end.
  };
  /// Of an input of integers, along an axis of that extent.
  Positions(const EvalSpec& spec, std::size_t input, std::int64_t extent, Rules rules)
      : kernels_(spec.kernels),
        op_(spec.op.def->name),
        input_(input),
        dtype_(spec.inputs[input]->dtype),
        elements_(num_elements(spec.inputs[input]->shape)),
        extent_(extent),
        rules_(rules) {}

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
    // Added to indices below 0.
    const bool is_signed = info(dtype_).kind != DTypeKind::kUInt;
    const std::int64_t added = rules_.from_end && is_signed ? extent_ : 0;
    std::uint64_t outside = 0;
    for (std::int64_t& value : loaded.values) {
      value += value < 0 ? added : 0;
      outside |= static_cast<std::uint64_t>(value < 0) | static_cast<std::uint64_t>(value >= extent_);
    }
    if (outside != 0) resolve_outside(loaded.values, added);
    return loaded;
  }

 private:
  /// `added`: the number that was added to indices below 0.
  void resolve_outside(std::vector<std::int64_t>& values, std::int64_t added) const {
    for (std::int64_t& value : values) {
      if (value >= 0 && value < extent_) continue;
      if (!rules_.may_be_outside) {
        raise<OutOfRangeError>("{}: index is out of range, got {}, expected {} <= index < {}", op_,
                               value < 0 ? value - added : value, -added, extent_);
      }
      value = -1;
    }
  }

  const kernels::KernelTable& kernels_;
  std::string_view op_;
  std::size_t input_;
  DType dtype_;
  std::int64_t elements_, extent_;
  Rules rules_;
};

}  // namespace popsr
