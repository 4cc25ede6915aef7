// Walker of ops on dense planes: operands are equal numbers of planes, one after another, and plane i of
// the output is computed from plane i of the inputs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "popsr/exec/block_kernel.h"

namespace popsr {

/// Arguments for one plane: each operand's plane, of the compute type.
struct PlaneArgs {
  std::span<const std::byte* const> in;
  std::byte* out;
  std::byte* scratch;
};
using PlaneBody = std::function<void(const PlaneArgs& args)>;

/// Kernel for output 0 of a floating op. `scratch`: elements of the compute type that the body may use.
/// Planes are shared among threads; narrow outputs are rounded as the op's definition says.
BlockKernel plane_kernel(const EvalSpec& spec, std::int64_t planes, std::int64_t scratch, PlaneBody body);

}  // namespace popsr
