#include "popsr/replica/comm_group.h"

#include "popsr/base/error.h"

namespace popsr {
namespace {

bool has_size(CommGroupType type) {
  return type == CommGroupType::kConsecutive || type == CommGroupType::kOrthogonal;
}

}  // namespace

std::string_view to_string(CommGroupType type) {
  switch (type) {
    case CommGroupType::kAll:
      return "All";
    case CommGroupType::kConsecutive:
      return "Consecutive";
    case CommGroupType::kOrthogonal:
      return "Orthogonal";
    case CommGroupType::kUngrouped:
      return "Ungrouped";
  }
  return "";
}

CommGroup::CommGroup(CommGroupType type, std::int64_t size) : type_(type), size_(size) {
  const std::int64_t least = has_size(type) ? 1 : 0;
  if (size < least) {
    raise<ReplicaError>("comm_group: groups are too small, got {} of size {}, expected at least {}",
                        popsr::to_string(type), size, least);
  }
}

CommGroup CommGroup::from_replica_grouping(const ReplicaGrouping& grouping) {
  if (grouping.group_size() == 1) return CommGroup(CommGroupType::kUngrouped);
  if (grouping.num_groups() == 1) return CommGroup(CommGroupType::kAll);
  if (grouping.stride() == grouping.num_groups()) {
    return CommGroup(CommGroupType::kOrthogonal, grouping.group_size());
  }
  if (grouping.stride() == 1) return CommGroup(CommGroupType::kConsecutive, grouping.group_size());
  raise<ReplicaError>(
      "comm_group: no CommGroup has these groups, got {}, expected stride 1 or as many groups as the stride",
      grouping.to_string());
}

CommGroup::Stride CommGroup::stride(std::int64_t replicas) const {
  if (has_size(type_) && (replicas < size_ || replicas % size_ != 0)) {
    raise<ReplicaError>(
        "comm_group: size does not divide the replicas, got {} of size {} for {} replicas, "
        "expected a divisor of {}",
        popsr::to_string(type_), size_, replicas, replicas);
  }
  switch (type_) {
    case CommGroupType::kAll:
      return {1, std::nullopt};
    case CommGroupType::kConsecutive:
      return {1, size_};
    case CommGroupType::kOrthogonal:
      return {replicas / size_, size_};
    case CommGroupType::kUngrouped:
      return {1, 1};
  }
  POPSR_CHECK(false);
}

ReplicaGrouping CommGroup::to_replica_grouping(std::int64_t replicas) const {
  const Stride groups = stride(replicas);
  return ReplicaGrouping::from_stride(replicas, groups.distance, groups.size);
}

std::int64_t CommGroup::num_groups(std::int64_t replicas) const {
  const Stride groups = stride(replicas);
  return ReplicaGrouping::count_groups(replicas, groups.distance, groups.size);
}

CommGroup CommGroup::complement(std::int64_t replicas) const {
  const std::int64_t groups = num_groups(replicas);
  switch (type_) {
    case CommGroupType::kAll:
      return CommGroup(CommGroupType::kUngrouped);
    case CommGroupType::kConsecutive:
      return CommGroup(CommGroupType::kOrthogonal, groups);
    case CommGroupType::kOrthogonal:
      return CommGroup(CommGroupType::kConsecutive, groups);
    case CommGroupType::kUngrouped:
      return CommGroup(CommGroupType::kAll);
  }
  POPSR_CHECK(false);
}

std::string CommGroup::to_string() const {
  return fmt::format("CommGroup(CommGroupType.{}, {})", popsr::to_string(type_), size_);
}

}  // namespace popsr
