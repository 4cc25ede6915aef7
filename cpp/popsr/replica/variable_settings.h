// PopART's description of a variable across replicas: groups that share a value, and the values that the
// host reads back.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "popsr/base/layout/shape.h"
#include "popsr/replica/comm_group.h"
#include "popsr/replica/replica_grouping.h"

namespace popsr {

/// Replicas whose values the host reads.
enum class VariableRetrievalMode : std::uint8_t {
  kOnePerGroup,        ///< First member of each group.
  kAllReplicas,        ///< Each replica, in replica order.
  kAllReduceReplicas,  ///< Sizes as for kOnePerGroup; no variable can be made with it.
};

std::string_view to_string(VariableRetrievalMode mode);

/// Groups of replicas that share a variable's value, and a retrieval mode. The replica count is an argument
/// of each query; queries throw ReplicaError if the groups do not tile that many replicas. Settings made
/// from different descriptions (CommGroup, stride and size, ReplicaGrouping) are different, even if their
/// groups agree.
class VariableSettings {
 public:
  static constexpr auto kDefaultMode = VariableRetrievalMode::kOnePerGroup;

  explicit VariableSettings(CommGroup group = CommGroup(), VariableRetrievalMode mode = kDefaultMode)
      : groups_(group), mode_(mode) {}
  explicit VariableSettings(VariableRetrievalMode mode) : VariableSettings(CommGroup(), mode) {}
  /// Makes settings of constant stride. Throws ReplicaError unless both are positive. Groups of one replica
  /// have stride 1.
  VariableSettings(std::int64_t stride, std::int64_t size, VariableRetrievalMode mode = kDefaultMode);
  /// Makes settings for the replica count of the grouping.
  explicit VariableSettings(ReplicaGrouping grouping, VariableRetrievalMode mode = kDefaultMode)
      : groups_(std::move(grouping)), mode_(mode) {}

  VariableRetrievalMode mode() const { return mode_; }
  /// CommGroup that the settings were made from, or null.
  const CommGroup* comm_group() const { return std::get_if<CommGroup>(&groups_); }
  /// ReplicaGrouping that the settings were made from, or null.
  const ReplicaGrouping* grouping() const { return std::get_if<ReplicaGrouping>(&groups_); }
  /// Stride and size that the settings were made from, or nullopt.
  std::optional<std::pair<std::int64_t, std::int64_t>> stride_and_size() const;
  ReplicaGrouping replica_grouping(std::int64_t replicas) const;

  /// Number of groups; like sizes and shapes, computed in constant time.
  std::int64_t group_count(std::int64_t replicas) const;
  std::int64_t group_size(std::int64_t replicas) const;
  /// Lowest replica of a group. Throws ReplicaError if there is no such group.
  Replica representative(std::int64_t replicas, std::int64_t group) const;
  /// Lowest replica of a group, which is the same for all replica counts that have the group. Throws
  /// ReplicaError if none has.
  Replica representative(std::int64_t group) const;
  /// Number of rows that the host reads: groups, or all replicas.
  std::int64_t returned_count(std::int64_t replicas) const;

  /// Shape of the initial data, `[groups, *shape]`, or `shape` if there is one group.
  Shape shape_on_host(const Shape& shape, std::int64_t replicas) const;
  /// Inverse of shape_on_host(). Throws ShapeError if the first dimension is not the number of groups;
  /// `name` is for its text.
  Shape shape_on_replica(const Shape& full, std::int64_t replicas, std::string_view name = {}) const;
  /// Shape of the data that the host reads, `[returned_count, *shape]`, or `shape` if that is one row.
  Shape returned_shape(const Shape& shape, std::int64_t replicas) const;

  bool operator==(const VariableSettings&) const = default;
  std::string to_string() const;

 private:
  struct StrideAndSize {
    std::int64_t stride, size;
    bool operator==(const StrideAndSize&) const = default;
  };
  /// Lowest replica of a group, at most kMaxReplicas; nullopt if there is only one group.
  std::optional<std::int64_t> first_member(std::int64_t group) const;

  std::variant<CommGroup, StrideAndSize, ReplicaGrouping> groups_;
  VariableRetrievalMode mode_;
};

}  // namespace popsr
