// PopART's name for the groupings that need no replica count: a kind of group and a size.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "popsr/replica/replica_grouping.h"

namespace popsr {

enum class CommGroupType : std::uint8_t {
  kAll,          ///< One group.
  kConsecutive,  ///< Neighbours: {0..k-1}, {k..2k-1} and so on.
  kOrthogonal,   ///< Groups j, j+m, j+2m and so on, with m = replicas / k groups.
  kUngrouped,    ///< A group a replica.
};

std::string_view to_string(CommGroupType type);

/// Compares type and size, also where the size says nothing: (All, 0) differs from (All, 1).
class CommGroup {
 public:
  /// Throws ReplicaError when a consecutive or orthogonal group has no member, or the size is negative.
  explicit CommGroup(CommGroupType type = CommGroupType::kAll, std::int64_t size = 0);
  /// The first that fits of Ungrouped, All, Orthogonal and Consecutive; size 0 for the first two.
  /// Throws ReplicaError when none does, as for {0,2}{1,3}{4,6}{5,7}.
  static CommGroup from_replica_grouping(const ReplicaGrouping& grouping);

  CommGroupType type() const { return type_; }
  /// Members of a group; nothing where the type decides.
  std::int64_t size() const { return size_; }
  /// Throws ReplicaError unless the size divides the replicas.
  ReplicaGrouping to_replica_grouping(std::int64_t replicas) const;
  /// The number of its groups, at no cost per replica. Throws as it does.
  std::int64_t num_groups(std::int64_t replicas) const;
  /// The groups across these: consecutive and orthogonal swap, as do All and Ungrouped.
  /// Throws ReplicaError unless the size divides the replicas.
  CommGroup complement(std::int64_t replicas) const;
  bool operator==(const CommGroup&) const = default;
  std::string to_string() const;

 private:
  struct Stride {
    std::int64_t distance;
    std::optional<std::int64_t> size;
  };
  /// The arguments of ReplicaGrouping::from_stride for these groups.
  Stride stride(std::int64_t replicas) const;

  CommGroupType type_;
  std::int64_t size_;
};

}  // namespace popsr
