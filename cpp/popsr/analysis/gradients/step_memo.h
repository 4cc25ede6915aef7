// Keys of recent results of ops on shares. Layers repeat: most ops that take gradients see shares that other
// ops saw before.
#pragma once

#include <cstdint>

#include "popsr/base/containers/recent.h"
#include "popsr/ir/op_def.h"
#include "popsr/replica/partition.h"

namespace popsr {

/// Key with everything that determines the share of a collective's result.
struct CollectiveStep {
  const OpDef* def = nullptr;
  std::uint64_t groups = 0;  ///< Groups of the collective: ReplicaGrouping::identity().
  std::uint32_t share = 0;
  PartitionId exec = {};
  std::uint32_t how = 0;        ///< Reduction of the collective, if it has one.
  std::uint32_t gradients = 0;  ///< Flag, 1 in a gradient graph.
  bool operator==(const CollectiveStep&) const = default;
  std::uint64_t hash() const {
    const std::uint64_t first = (reinterpret_cast<std::uintptr_t>(def) ^ groups << 7) * kHashFactor;
    return (first ^ first >> 29 ^ std::uint64_t{share} << 8 ^ std::uint64_t{exec.value} << 20 ^ how << 1 ^
            std::uint64_t{gradients}) *
           kHashFactor;
  }
};

/// Key of a local op whose results are equal where its inputs are.
struct LocalStep {
  /// Kind of step. As large as the other members: a key without padding is copied at once.
  enum class Kind : std::uint32_t { kSum, kInGradients, kLinear, kOther };

  std::uint32_t share = 0;  ///< Sum of the shares.
  /// Meet of the facts of operands that are not gradients; for a sum, the other share.
  std::uint32_t with = 0;
  PartitionId exec = {};
  Kind kind = Kind::kSum;
  bool operator==(const LocalStep&) const = default;
  std::uint64_t hash() const {
    return (std::uint64_t{share} << 32 ^ std::uint64_t{with} << 10 ^ std::uint64_t{exec.value} << 22 ^
            static_cast<std::uint64_t>(kind)) *
           kHashFactor;
  }
};

}  // namespace popsr
