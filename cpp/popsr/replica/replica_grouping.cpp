#include "popsr/replica/replica_grouping.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "popsr/base/error.h"

namespace popsr {

ReplicaGrouping::ReplicaGrouping(std::vector<std::int64_t> assignment) : assignment_(std::move(assignment)) {
  num_groups_ = 1 + *std::ranges::max_element(assignment_);
  const std::int64_t size = group_size();
  members_.resize(assignment_.size());
  std::vector<std::int64_t> filled(static_cast<std::size_t>(num_groups_), 0);
  for (std::size_t r = 0; r < assignment_.size(); ++r) {
    const auto group = static_cast<std::size_t>(assignment_[r]);
    members_[group * static_cast<std::size_t>(size) + static_cast<std::size_t>(filled[group]++)] =
        static_cast<Replica>(r);
  }
  // One stride for all neighbours of all groups, else non-constant; singletons count as stride 1.
  stride_ = size == 1 ? 1 : static_cast<std::int64_t>(members_[1]) - static_cast<std::int64_t>(members_[0]);
  for (std::size_t i = 1; i < members_.size(); ++i) {
    const bool same_group = i % static_cast<std::size_t>(size) != 0;
    if (same_group &&
        static_cast<std::int64_t>(members_[i]) - static_cast<std::int64_t>(members_[i - 1]) != stride_) {
      stride_ = 0;
      return;
    }
  }
}

ReplicaGrouping ReplicaGrouping::from_stride(std::int64_t replicas, std::int64_t stride,
                                             std::optional<std::int64_t> group_size) {
  if (stride < 1 || stride > replicas || replicas % stride != 0) {
    raise<ReplicaError>(
        "replica_grouping: stride does not tile the replicas, got stride {} for {} replicas, "
        "expected a divisor of {}",
        stride, replicas, replicas);
  }
  const std::int64_t size = group_size.value_or(replicas / stride);
  if (size == 1) stride = 1;
  if (size < 1 || size > replicas / stride || replicas % (stride * size) != 0) {
    raise<ReplicaError>(
        "replica_grouping: groups do not tile the replicas, got stride {} and group_size {} for {} replicas, "
        "expected stride * group_size to divide {}",
        stride, size, replicas, replicas);
  }
  std::vector<std::int64_t> assignment(static_cast<std::size_t>(replicas));
  for (std::int64_t r = 0; r < replicas; ++r) {
    assignment[static_cast<std::size_t>(r)] = r % stride + stride * (r / (stride * size));
  }
  return ReplicaGrouping(std::move(assignment));
}

ReplicaGrouping ReplicaGrouping::from_assignment(std::span<const std::int64_t> assignment) {
  if (assignment.empty())
    raise<ReplicaError>("replica_grouping: empty assignment, got [], expected one group a replica");
  std::vector<std::int64_t> counts;
  for (const std::int64_t group : assignment) {
    if (group < 0 || group > static_cast<std::int64_t>(counts.size())) {
      raise<ReplicaError>(
          "replica_grouping: groups are not numbered from 0 in order of first appearance, got [{}]",
          fmt::join(assignment, ", "));
    }
    if (group == static_cast<std::int64_t>(counts.size())) counts.push_back(0);
    ++counts[static_cast<std::size_t>(group)];
  }
  if (std::ranges::adjacent_find(counts, std::not_equal_to<>()) != counts.end()) {
    raise<ReplicaError>("replica_grouping: groups differ in size, got [{}], expected equal sizes",
                        fmt::join(assignment, ", "));
  }
  return ReplicaGrouping({assignment.begin(), assignment.end()});
}

std::span<const Replica> ReplicaGrouping::members(Replica replica) const {
  const auto size = static_cast<std::size_t>(group_size());
  return std::span(members_).subspan(static_cast<std::size_t>(assignment_[replica]) * size, size);
}

std::int64_t ReplicaGrouping::index_in_group(Replica replica) const {
  return std::ranges::find(members(replica), replica) - members(replica).begin();
}

ReplicaGrouping ReplicaGrouping::transpose() const {
  // Number the new groups by first appearance, as every assignment is.
  std::vector<std::int64_t> fresh(static_cast<std::size_t>(group_size()), -1);
  std::vector<std::int64_t> assignment(assignment_.size());
  std::int64_t next = 0;
  for (std::size_t r = 0; r < assignment.size(); ++r) {
    std::int64_t& label = fresh[static_cast<std::size_t>(index_in_group(static_cast<Replica>(r)))];
    if (label < 0) label = next++;
    assignment[r] = label;
  }
  return ReplicaGrouping(std::move(assignment));
}

PartitionId ReplicaGrouping::partition(PartitionTable& table) const {
  return table.from_keys(std::vector<std::uint64_t>(assignment_.begin(), assignment_.end()));
}

std::string ReplicaGrouping::to_string() const {
  if (is_const()) {
    return fmt::format("ReplicaGrouping(num_replicas={}, stride={}, group_size={}, num_groups={})",
                       replicas(), stride_, group_size(), num_groups_);
  }
  return fmt::format("ReplicaGrouping(assignment=[{}])", fmt::join(assignment_, ", "));
}

}  // namespace popsr
