// Groups of replicas as PopXL names them: replicas that communicate in a collective or share a variable's
// value.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "popsr/replica/partition.h"

namespace popsr {

/// Tiling of {0..R-1} into groups of equal size. Members of a group are in ascending replica order. A value
/// that is cheap to copy: copies share their tables.
///
/// Constant stride: member k of group g is (g div stride)*stride*size + g mod stride + k*stride.
class ReplicaGrouping {
 public:
  /// Grouping of constant stride. Throws ReplicaError unless 0 < stride, 0 < group_size and
  /// stride*group_size divides replicas. Without group_size, groups have replicas / stride members. Groups
  /// of one replica have stride 1.
  static ReplicaGrouping from_stride(std::int64_t replicas, std::int64_t stride = 1,
                                     std::optional<std::int64_t> group_size = {});
  /// Number of groups of from_stride(), without building tables. Throws as it does.
  static std::int64_t count_groups(std::int64_t replicas, std::int64_t stride = 1,
                                   std::optional<std::int64_t> group_size = {});
  /// Grouping from the group of each replica. Throws ReplicaError unless groups are of equal size and
  /// numbered from 0 in order of first appearance.
  static ReplicaGrouping from_assignment(std::span<const std::int64_t> assignment);

  std::int64_t replicas() const { return static_cast<std::int64_t>(assignment().size()); }
  std::int64_t num_groups() const { return tables_->num_groups; }
  std::int64_t group_size() const { return replicas() / num_groups(); }
  bool is_const() const { return stride() > 0; }
  /// Distance between members; 0 if it is not constant.
  std::int64_t stride() const { return tables_->stride; }
  const std::vector<std::int64_t>& assignment() const { return tables_->assignment; }
  /// Members of the group of `replica`, ascending.
  std::span<const Replica> members(Replica replica) const;
  /// Members of a group by its number, ascending. Throws ReplicaError outside [0, num_groups).
  std::span<const Replica> group(std::int64_t group) const;
  /// Position of `replica` in its group.
  std::int64_t index_in_group(Replica replica) const;
  /// Transposed grouping: new group k holds the k-th member of every group.
  ReplicaGrouping transpose() const;

  /// Grouping of constant stride that refines this one; this one if it is constant. With s the smallest
  /// distance of neighbours in any group: groups break where the distance exceeds s, into parts of the size
  /// that divides all of them.
  ReplicaGrouping const_grouping() const;
  /// Number of the group that contains each group of const_grouping().
  std::vector<std::int64_t> to_device_map() const;
  /// Number of the first group of const_grouping() in each group.
  std::vector<std::int64_t> to_host_map() const;

  PartitionId partition(PartitionTable& table) const;
  Partition partition() const;
  /// Identity for cache keys: groupings of the same replicas have equal identities only if they are equal,
  /// while either of them lives.
  std::uint64_t identity() const;
  /// Owner that keeps identity() valid.
  std::shared_ptr<const void> keep_alive() const { return tables_; }
  bool operator==(const ReplicaGrouping& other) const {
    return tables_ == other.tables_ || assignment() == other.assignment();
  }
  /// Text like PopXL's: stride and size of a constant grouping, otherwise the assignment; the ends of a
  /// long one.
  std::string to_string() const;
  /// Table with a row per group; the middle of long tables and rows is left out.
  std::string table() const;

 private:
  struct Tables {
    std::vector<std::int64_t> assignment;
    std::vector<Replica> members;  ///< Members as [num_groups, group_size].
    std::int64_t num_groups = 1;
    std::int64_t stride = 1;
  };
  explicit ReplicaGrouping(std::vector<std::int64_t> assignment);
  const std::vector<Replica>& all_members() const { return tables_->members; }

  std::shared_ptr<const Tables> tables_;
};

}  // namespace popsr
