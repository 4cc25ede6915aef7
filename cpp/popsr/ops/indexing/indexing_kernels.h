// Kernels that address one axis of a tensor by an index tensor: the walk that gathers and scatters share.
//
// Indices are read first, of all blocks: one that is out of range raises OutOfRangeError before anything is
// written. Elements that meet at one position are reduced in ascending order along the axis, so no result
// depends on the number of threads.
#pragma once

#include <cstdint>
#include <optional>

#include "popsr/exec/block_kernel.h"

namespace popsr {

/// A dense side that is walked ("loop") beside a dense side that is addressed ("indexed"): element (.., i,
/// ..) of the first meets element (.., index, ..) of the second, at equal coordinates but on `axis`.
struct IndexedAxis {
  Shape loop = {}, indexed = {};  ///< Of one rank; beside the axis loop <= indexed.
  Shape index_strides = {};       ///< Of the index tensor along the dimensions of loop; 0 where it is shared.
  std::size_t axis = 0;
};

struct TakeOptions {
  bool zero_out_of_range = false;  ///< Zeros, instead of OutOfRangeError.
  bool last_only = false;          ///< Zeros, but for the last element of the walk that meets a position.
  bool from_end = false;           ///< Indices below 0 count from the end.
};
/// Output 0, the loop side, = elements of input 0, the indexed side, at the indices in input 1.
BlockKernel take_kernel(const EvalSpec& spec, const IndexedAxis& walk, TakeOptions options = {});

enum class IndexReduction : std::uint8_t { kLast, kSum, kMul, kMax, kMin };

struct ScatterOptions {
  IndexReduction reduction = IndexReduction::kLast;
  std::size_t values = 0, indices = 1;      ///< Inputs.
  std::optional<std::size_t> initial = {};  ///< Input; zeros at positions that nothing meets without one.
  bool skip_out_of_range = false;           ///< Instead of OutOfRangeError.
  bool from_end = false;                    ///< Indices below 0 count from the end.
};
/// Output 0, the indexed side, = the initial values reduced with the values. Narrow floats are reduced as
/// float32 and rounded once.
BlockKernel scatter_kernel(const EvalSpec& spec, const IndexedAxis& walk, ScatterOptions options);

/// Output 0 = input 0, the indexed side, with zeros where the indices in input 1 point.
BlockKernel clear_kernel(const EvalSpec& spec, const IndexedAxis& walk);

}  // namespace popsr
