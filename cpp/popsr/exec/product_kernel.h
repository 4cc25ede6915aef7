// Matrix products that are computed inside their only consumer, tile by tile or some rows at a time, and
// never stored in full.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>

#include "popsr/exec/block_kernel.h"
#include "popsr/kernels/contract/accumulation.h"
#include "popsr/replica/replica_grouping.h"

namespace popsr {

/// Operands of a sum of products, out = (sum of terms) / divisor, where each term is a product, or of an
/// accumulated product, out = alpha * out + beta * product.
struct ProductRun {
  const void* const* lhs;  ///< Left operands, one pointer per term.
  const void* const* rhs;
  std::int64_t terms;
  void* out;
  /// Factors of the accumulation into out (terms == 1); null: out is the sum of the terms.
  const kernels::AccumulationFactors* factors;
  double divisor;
  ThreadPool& pool;
  /// Number of products that each term accumulates one after another, each with its own `factors`, starting
  /// from the term's pointer in `start`. lhs and rhs then hold steps pointers per term.
  std::int64_t steps = 1;
  const void* const* start = nullptr;
};

using ProductKernel = std::function<void(const ProductRun&)>;

/// Rows begin..end-1 of one block's product, rounded as the whole product would be.
struct RowsRun {
  const std::byte* lhs;
  const std::byte* rhs;
  std::byte* out;  ///< Dense rows of the result.
  std::int64_t begin, end;
  const kernels::NoiseKey* noise;  ///< Noise key of the block; null when rounded to nearest.
};

using RowsKernel = std::function<void(const RowsRun&)>;

/// Accumulation or reduction by the consumer of a product that is fused into it. Output and product have
/// the same shape, and an element of the output depends on the same element of the products alone, so both
/// can be computed slice by slice.
struct ProductFusion {
  std::size_t product_input = 0;  ///< Index of the input that may be a product.
  /// Input that is accumulated into; nullopt: the op reduces over a group.
  std::optional<std::size_t> target = {};
  /// Groups of a reduction; nullopt: one group of all replicas.
  std::optional<ReplicaGrouping> group = {};
  bool symmetric = false;  ///< True if target and product may be exchanged.
  /// True if ProductRun computes the op in registers, with `divisor` and `factors`; otherwise the op's own
  /// kernel runs slice by slice.
  bool in_registers = false;
  double divisor = 1.0;
  /// Reads the accumulation factors from the inputs of the current block.
  std::function<kernels::AccumulationFactors(const std::byte* const* in)> factors = {};
};

}  // namespace popsr
