// Indices that an op reads before it writes anything.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "popsr/base/error.h"
#include "popsr/exec/block_kernel.h"
#include "popsr/ir/op_def.h"
#include "popsr/ops/loops/blocks.h"
#include "popsr/ops/loops/tiles.h"

namespace popsr {

/// Indices of all blocks of a run, checked to be in range; -1 stands for an index out of range, if that is
/// allowed.
class Positions {
 public:
  struct Rules {
    bool may_be_outside = false;
    bool from_end = false;  ///< True if negative indices count from the end.
  };
  /// Reader of an input of integers, along an axis of that extent.
  Positions(const EvalSpec& spec, std::size_t input, std::int64_t extent, Rules rules)
      : kernels_(spec.kernels),
        op_(spec.op.def->name),
        input_(input),
        dtype_(spec.inputs[input]->dtype),
        elements_(num_elements(spec.inputs[input]->shape)),
        extent_(extent),
        rules_(rules) {}

  class Loaded {
   public:
    const std::int64_t* of(const Block& block) const {
      return own_ ? own_.get() + block.index() * block_step_
                  : reinterpret_cast<const std::int64_t*>(block.in(input_));
    }

   private:
    friend class Positions;
    /// Converted positions; null: the input has the positions themselves.
    std::unique_ptr<std::int64_t[]> own_ = nullptr;
    std::int64_t block_step_ = 0;
    std::size_t input_ = 0;
  };

  /// Loads and checks the positions of a run; they are valid as long as the run's inputs.
  Loaded load(const BlockRun& run) const {
    const std::int64_t blocks =
        run.in_stride[input_] == 0 ? std::min<std::int64_t>(run.blocks, 1) : run.blocks;
    Loaded loaded;
    loaded.input_ = input_;
    if (has_positions(run, blocks)) return loaded;
    loaded.own_ =
        std::make_unique_for_overwrite<std::int64_t[]>(static_cast<std::size_t>(blocks * elements_));
    loaded.block_step_ = run.in_stride[input_] == 0 ? 0 : elements_;
    const std::span values(loaded.own_.get(), static_cast<std::size_t>(blocks * elements_));
    for (std::int64_t b = 0; b < blocks && elements_ > 0; ++b) {
      // Unsigned numbers from 2^63 on come out negative: out of range either way.
      load_tile(kernels_, dtype_, kernels::Compute::kI64, values.data() + b * elements_,
                Block(run, b).in(input_), elements_);
    }
    // Offset added to negative indices.
    const bool is_signed = info(dtype_).kind != DTypeKind::kUInt;
    const std::int64_t added = rules_.from_end && is_signed ? extent_ : 0;
    for (std::int64_t& value : values) value += value < 0 ? added : 0;
    if (!are_inside(values)) resolve_outside(values, added);
    return loaded;
  }

 private:
  /// True if the input has 64-bit integers that can be used as positions directly.
  bool has_positions(const BlockRun& run, std::int64_t blocks) const {
    if (dtype_ != DType::kInt64) return false;
    for (std::int64_t b = 0; b < blocks && elements_ > 0; ++b) {
      const auto* const first = reinterpret_cast<const std::int64_t*>(Block(run, b).in(input_));
      if (!are_inside({first, static_cast<std::size_t>(elements_)})) return false;
    }
    return true;
  }

  bool are_inside(std::span<const std::int64_t> values) const {
    // A negative index is, as an unsigned number, greater than any extent.
    const auto extent = static_cast<std::uint64_t>(extent_);
    std::uint64_t outside = 0;
    for (const std::int64_t value : values) outside |= static_cast<std::uint64_t>(value) >= extent ? 1U : 0U;
    return outside == 0;
  }

  /// Replaces or rejects indices out of range; `added` is the offset that was added to negative indices.
  void resolve_outside(std::span<std::int64_t> values, std::int64_t added) const {
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
