// Kernels of matrix products that are not stored in full: their consumer accumulates or reduces them tile by
// tile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>

#include "popsr/base/fold_factors.h"
#include "popsr/exec/block_kernel.h"

namespace popsr {

/// A product whose only consumer folds it: out = fold of products, tile by tile, never stored in full.
struct ProductRun {
  const void* const* lhs;  ///< `folds` pointers.
  const void* const* rhs;
  std::int64_t folds;
  void* out;
  /// Of the accumulation into out (folds == 1); null: out = (sum of products) / divisor.
  const FoldFactors* factors;
  double divisor;
  ThreadPool& pool;
  /// With `start`, each fold starts as that and takes `steps` products, one after another, each by its own
  /// `factors`; lhs and rhs hold the pointers of all of them, then out = (sum of folds) / divisor.
  std::int64_t steps = 1;
  const void* const* start = nullptr;
};
using ProductKernel = std::function<void(const ProductRun&)>;

/// Rows begin..end-1 of one block's product, rounded as the whole product would be.
struct RowsRun {
  const std::byte* lhs;
  const std::byte* rhs;
  std::byte* out;  ///< Dense rows.
  std::int64_t begin, end;
  const kernels::NoiseKey* noise;  ///< Of the block; null when rounded to nearest.
};
using RowsKernel = std::function<void(const RowsRun&)>;

/// How a consumer folds a product; set on ops that can. Output and product have the same shape, and an
/// element of the output depends on the same element of the products alone: they may meet slice by slice.
struct FoldSink {
  std::size_t product_input = 0;  ///< Which input may be a product.
  std::optional<std::size_t> target =
      {};  ///< The input that is accumulated into; none = reduction over a group.
  /// Reduction: the groups; none = all replicas.
  std::optional<ReplicaGrouping> group = {};
  /// May be folded in registers, by the numbers below? Else slice by slice, by the op's own kernel.
  bool in_registers = false;
  double divisor = 1.0;
  /// Reads them from the op's inputs in the block at hand.
  std::function<FoldFactors(const std::byte* const* in)> factors = {};
};

}  // namespace popsr
