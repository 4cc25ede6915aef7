// PopART's description of groupings that need no replica count: a type of group and a size.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "popsr/replica/replica_grouping.h"

namespace popsr {

enum class CommGroupType : std::uint8_t {
  kAll,          ///< One group of all replicas.
  kConsecutive,  ///< Groups of neighbours: {0..k-1}, {k..2k-1} and so on.
  kOrthogonal,   ///< Strided groups j, j+m, j+2m and so on, with m = replicas / k groups.
  kUngrouped,    ///< One group per replica.
};

std::string_view to_string(CommGroupType type);

/// Type and size of groups. Comparison includes the size even if the type makes it irrelevant: (All, 0)
/// differs from (All, 1).
class CommGroup {
 public:
  /// Makes a group description. Throws ReplicaError if a consecutive or orthogonal group has no member, or
  /// the size is negative.
  explicit CommGroup(CommGroupType type = CommGroupType::kAll, std::int64_t size = 0);
  /// First type of Ungrouped, All, Orthogonal and Consecutive that fits the grouping; size 0 for the first
  /// two. Throws ReplicaError if none fits, as for {0,2}{1,3}{4,6}{5,7}.
  static CommGroup from_replica_grouping(const ReplicaGrouping& grouping);

  CommGroupType type() const { return type_; }
  /// Members of a group; meaningless for the types All and Ungrouped.
  std::int64_t size() const { return size_; }
  /// Grouping of that many replicas. Throws ReplicaError unless the size divides the replicas.
  ReplicaGrouping to_replica_grouping(std::int64_t replicas) const;
  /// Number of groups, computed in constant time. Throws as to_replica_grouping() does.
  std::int64_t num_groups(std::int64_t replicas) const;
  /// Groups across these: consecutive and orthogonal swap, as do All and Ungrouped. Throws ReplicaError
  /// unless the size divides the replicas.
  CommGroup complement(std::int64_t replicas) const;
  bool operator==(const CommGroup&) const = default;
  std::string to_string() const;

 private:
  struct Stride {
    std::int64_t distance;
    std::optional<std::int64_t> size;
  };
  /// Arguments of ReplicaGrouping::from_stride for these groups.
  Stride stride(std::int64_t replicas) const;

  CommGroupType type_;
  std::int64_t size_;
};

}  // namespace popsr
