// The share of a derivative that a gradient tensor holds, and the effect of ops on it.
//
// Let each replica j have a copy x_j of a forward value x of its own, and let h_j be the derivative of the
// objective by x_j. The objective is the sum of the values that gradients start from, where values of
// replicas that are proved equal count once. A gradient tensor dx then has on replica r
//
//     dx_r = factor * (sum of h_j over the replicas j in the block of r in `summed`)
//
// For an x that is equal inside the blocks of P, the derivative by the x of a block is the sum of h_j over
// the block: dx holds it when `summed` is P, or gives the same sums because h is equal inside the blocks of
// `equal`; otherwise dx is a partial sum that is pending over P. A collective adds: `summed` grows. An op
// that each replica does alone keeps `summed`, if its forward values are equal inside the blocks of `summed`.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "popsr/ir/ids.h"
#include "popsr/replica/partition.h"
#include "popsr/replica/replica_grouping.h"

namespace popsr {

/// A positive fraction in lowest terms.
struct Ratio {
  std::int64_t numerator = 1, denominator = 1;
  bool operator==(const Ratio&) const = default;
};
Ratio operator*(const Ratio& a, const Ratio& b);

struct GradientShare {
  PartitionId summed = {};
  PartitionId equal = {};  ///< Partition such that the h_j of one block are equal.
  PartitionId whole = {};  ///< Partition P of replicas that hold the same forward value.
  Ratio factor = {};
  /// True if an op outside of gradient graphs multiplied it: the factor says nothing more.
  bool scaled = false;
  /// Number of the group of gradient-graph calls that it comes from (GradientFlow).
  std::uint32_t source = 0;
  bool operator==(const GradientShare&) const = default;
};

/// Share of a gradient that starts from values with this fact: derivatives that are equal inside its
/// blocks, each counted once.
GradientShare starting_share(PartitionId fact, std::uint32_t source);

/// Factor with which the share holds sums over `summed`; nullopt if it holds other sums.
std::optional<Ratio> factor_over(PartitionTable& table, const GradientShare& share, PartitionId summed);

/// True if every replica holds, up to a factor, the derivative with respect to the value that its block of
/// `whole` shares.
bool is_whole(PartitionTable& table, const GradientShare& share, PartitionId whole);

/// Share of the sum of two gradients; nullopt if they are sums over different replicas, or have different
/// factors.
std::optional<GradientShare> sum_of(PartitionTable& table, const GradientShare& a, const GradientShare& b);

/// Share after a sum over groups; nullopt if it counts some derivatives more often than others.
std::optional<GradientShare> reduced(PartitionTable& table, const GradientShare& share,
                                     const ReplicaGrouping& group, bool mean);

/// Share of the gradient of x when the gradient of y is used for it, where y is x summed over groups;
/// nullopt unless the gradient of y is a sum over whole groups.
std::optional<GradientShare> of_summed(PartitionTable& table, const GradientShare& share,
                                       const ReplicaGrouping& group);

/// Share after an op on forward values that are equal inside the blocks of `values`; `equal` is the part of
/// the share's `equal` that the op preserves. nullopt if the op treats terms of one sum differently.
std::optional<GradientShare> after_op(PartitionTable& table, GradientShare share, PartitionId values,
                                      PartitionId equal);

}  // namespace popsr
