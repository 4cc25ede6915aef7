// Kernels that address one axis of a tensor by an index tensor: the walk that gathers and scatters share.
//
// The indices of all blocks are read first: one that is out of range raises OutOfRangeError before anything
// is written. Elements with equal positions are reduced in ascending order along the axis, so no result
// depends on the number of threads.
#pragma once

#include <cstdint>
#include <optional>

#include "popsr/exec/block_kernel.h"

namespace popsr {

/// Pair of a dense side that is walked ("loop") and a dense side that is addressed ("indexed"): element
/// (.., i, ..) of the first corresponds to element (.., index, ..) of the second, at equal coordinates
/// except on `axis`.
struct IndexedAxis {
  /// Shapes of the two sides, of one rank; loop <= indexed except on the axis.
  Shape loop = {}, indexed = {};
  /// Strides of the index tensor along the dimensions of loop; 0 where it is shared.
  Shape index_strides = {};
  std::size_t axis = 0;
};

struct TakeOptions {
  bool zero_out_of_range = false;  ///< True: out-of-range indices give zeros instead of OutOfRangeError.
  /// True: only the last element of the walk at a position is kept; the others are zeros.
  bool last_only = false;
  bool from_end = false;  ///< True if negative indices count from the end.
};
/// Kernel: output 0, the loop side, = elements of input 0, the indexed side, at the indices in input 1.
BlockKernel take_kernel(const EvalSpec& spec, const IndexedAxis& walk, TakeOptions options = {});

enum class IndexReduction : std::uint8_t { kLast, kSum, kMul, kMax, kMin };

struct ScatterOptions {
  IndexReduction reduction = IndexReduction::kLast;
  std::size_t values = 0, indices = 1;  ///< Indices of the inputs with the values and the indices.
  /// Input with the initial values; nullopt: positions without an index are zeros.
  std::optional<std::size_t> initial = {};
  /// True to skip out-of-range indices instead of raising OutOfRangeError.
  bool skip_out_of_range = false;
  bool from_end = false;  ///< True if negative indices count from the end.
};
/// Kernel: output 0, the indexed side, = the initial values reduced with the values. Narrow floats are
/// reduced as float32 and rounded once.
BlockKernel scatter_kernel(const EvalSpec& spec, const IndexedAxis& walk, ScatterOptions options);

/// Kernel: output 0 = input 0, the indexed side, with zeros at the indices in input 1.
BlockKernel clear_kernel(const EvalSpec& spec, const IndexedAxis& walk);

}  // namespace popsr
