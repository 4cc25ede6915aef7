// Walker of ops on rows along any axes whose operands may differ in shape and dtype: every input row is
// gathered and widened, every output row narrowed and scattered. Elements of a row are in C order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "popsr/exec/block_kernel.h"
#include "popsr/kernels/contract/kernel_table.h"

namespace popsr {

/// Arguments for one row: each operand's row, in the compute type of its dtype; outputs do not alias inputs.
struct RowArgs {
  std::span<const std::byte* const> in;
  std::span<std::byte* const> out;
  std::span<std::int32_t> order;  ///< Workspace of as many elements as the longest row.
  std::byte* room;                ///< Further workspace, of the bytes that row_kernel was asked for.
};
using RowBody = std::function<void(const RowArgs& args)>;

/// Kernel on rows; `axes` are the axes that a row spans, ascending. Inputs and outputs have the same
/// extents elsewhere; reduced ones have extents of 1 on `axes`, kept or not. Narrow outputs are rounded as
/// the op's definition says.
BlockKernel row_kernel(const EvalSpec& spec, std::vector<std::int64_t> axes, RowBody body,
                       std::int64_t room = 0);

/// Calls f with a null pointer to the compute type of a dtype of numbers.
template <class F>
auto with_compute_type(kernels::Compute compute, const F& f) {
  switch (compute) {
    case kernels::Compute::kF64:
      return f(static_cast<double*>(nullptr));
    case kernels::Compute::kI8:
      return f(static_cast<std::int8_t*>(nullptr));
    case kernels::Compute::kI16:
      return f(static_cast<std::int16_t*>(nullptr));
    case kernels::Compute::kI32:
      return f(static_cast<std::int32_t*>(nullptr));
    case kernels::Compute::kI64:
      return f(static_cast<std::int64_t*>(nullptr));
    case kernels::Compute::kU8:
      return f(static_cast<std::uint8_t*>(nullptr));
    case kernels::Compute::kU16:
      return f(static_cast<std::uint16_t*>(nullptr));
    case kernels::Compute::kU32:
      return f(static_cast<std::uint32_t*>(nullptr));
    case kernels::Compute::kU64:
      return f(static_cast<std::uint64_t*>(nullptr));
    default:
      return f(static_cast<float*>(nullptr));
  }
}

}  // namespace popsr
