// PopART's description of a variable across replicas: which share a value, and what the host reads back.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "popsr/base/shape.h"
#include "popsr/replica/comm_group.h"
#include "popsr/replica/replica_grouping.h"

namespace popsr {

/// Replicas whose values the host reads.
enum class VariableRetrievalMode : std::uint8_t {
  kOnePerGroup,        ///< Of the first member of each group.
  kAllReplicas,        ///< Of each replica, in replica order.
  kAllReduceReplicas,  ///< Sizes as for kOnePerGroup; no variable can be made with it.
};

std::string_view to_string(VariableRetrievalMode mode);

/// Groups of replicas that share a variable's value, and a retrieval mode. The replica count is an argument
/// of each query; queries throw ReplicaError when the groups do not tile that many replicas. Settings made of
/// different things (CommGroup, stride and size, ReplicaGrouping) are different, also if their groups agree.
class VariableSettings {
 public:
  static constexpr auto kDefaultMode = VariableRetrievalMode::kOnePerGroup;

  explicit VariableSettings(CommGroup group = CommGroup(), VariableRetrievalMode mode = kDefaultMode)
      : groups_(group), mode_(mode) {}
  explicit VariableSettings(VariableRetrievalMode mode) : VariableSettings(CommGroup(), mode) {}
  /// Throws ReplicaError unless both are positive. Groups of one replica have stride 1.
  VariableSettings(std::int64_t stride, std::int64_t size, VariableRetrievalMode mode = kDefaultMode);
  /// Fits one replica count only.
  explicit VariableSettings(ReplicaGrouping grouping, VariableRetrievalMode mode = kDefaultMode)
      : groups_(std::move(grouping)), mode_(mode) {}

  VariableRetrievalMode mode() const { return mode_; }
  /// Null unless the settings were made of a CommGroup.
  const CommGroup* comm_group() const { return std::get_if<CommGroup>(&groups_); }
  /// Null unless the settings were made of a ReplicaGrouping.
  const ReplicaGrouping* grouping() const { return std::get_if<ReplicaGrouping>(&groups_); }
  /// Nothing unless the settings were made of a stride and a size.
  std::optional<std::pair<std::int64_t, std::int64_t>> stride_and_size() const;
  ReplicaGrouping replica_grouping(std::int64_t replicas) const;

  /// At no cost per replica, as sizes and shapes are.
  std::int64_t group_count(std::int64_t replicas) const;
  std::int64_t group_size(std::int64_t replicas) const;
  /// Lowest replica of a group. Throws ReplicaError when there is no such group.
  Replica representative(std::int64_t replicas, std::int64_t group) const;
  /// The same, which is one for all numbers of replicas that have the group. Throws ReplicaError when none
  /// has.
  Replica representative(std::int64_t group) const;
  /// Rows that the host reads: groups, or all replicas.
  std::int64_t returned_count(std::int64_t replicas) const;

  /// Shape of the initial data, `[groups, *shape]`, or `shape` if there is one group.
  Shape shape_on_host(const Shape& shape, std::int64_t replicas) const;
  /// The inverse. Throws ShapeError when the first dimension is not the number of groups; `name` is for it.
  Shape shape_on_replica(const Shape& full, std::int64_t replicas, std::string_view name = {}) const;
  /// Shape of what the host reads, `[returned_count, *shape]`, or `shape` if that is one row.
  Shape returned_shape(const Shape& shape, std::int64_t replicas) const;

  bool operator==(const VariableSettings&) const = default;
  std::string to_string() const;

 private:
  struct StrideAndSize {
    std::int64_t stride, size;
    bool operator==(const StrideAndSize&) const = default;
  };
  /// Lowest replica of a group of at most kMaxReplicas; nothing when there is one group only.
  std::optional<std::int64_t> first_member(std::int64_t group) const;

  std::variant<CommGroup, StrideAndSize, ReplicaGrouping> groups_;
  VariableRetrievalMode mode_;
};

}  // namespace popsr
