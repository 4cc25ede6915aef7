// Products that are computed inside their only consumer, tile by tile or some rows at a time, and never
// stored in full.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>

#include "popsr/exec/block_kernel.h"
#include "popsr/kernels/contract/accumulation.h"
#include "popsr/replica/replica_grouping.h"

namespace popsr {

/// A sum of products, or a product that is accumulated: out = (sum of terms) / divisor, where each term is a
/// product; or out = alpha * out + beta * product.
struct ProductRun {
  const void* const* lhs;  ///< `terms` pointers.
  const void* const* rhs;
  std::int64_t terms;
  void* out;
  /// Of the accumulation into out (terms == 1); null: out is the sum.
  const kernels::AccumulationFactors* factors;
  double divisor;
  ThreadPool& pool;
  /// With `start`, each term starts as that and takes `steps` products, one after another, each by its own
  /// `factors`; lhs and rhs hold the pointers of all of them.
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

/// Accumulation or reduction by the consumer of a product that is fused into it. Output and product have the
/// same shape, and an element of the output depends on the same element of the products alone: they may meet
/// slice by slice.
struct ProductFusion {
  std::size_t product_input = 0;  ///< Which input may be a product.
  std::optional<std::size_t> target =
      {};  ///< The input that is accumulated into; none = reduction over a group.
  /// Reduction: the groups; none = all replicas.
  std::optional<ReplicaGrouping> group = {};
  bool symmetric = false;  ///< Target and product may be exchanged.
  /// True if ProductRun computes it, in registers, by the numbers below; else slice by slice, by the op's own
  /// kernel.
  bool in_registers = false;
  double divisor = 1.0;
  /// Reads them from the op's inputs in the block at hand.
  std::function<kernels::AccumulationFactors(const std::byte* const* in)> factors = {};
};

}  // namespace popsr
