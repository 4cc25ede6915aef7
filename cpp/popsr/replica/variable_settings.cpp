#include "popsr/replica/variable_settings.h"

#include <algorithm>

#include "popsr/base/error.h"
#include "popsr/replica/limits.h"

namespace popsr {
namespace {

Shape with_rows(const Shape& shape, std::int64_t rows) {
  Shape result = shape;
  if (rows != 1) result.insert(result.begin(), rows);
  return result;
}

}  // namespace

std::string_view to_string(VariableRetrievalMode mode) {
  switch (mode) {
    case VariableRetrievalMode::kOnePerGroup:
      return "OnePerGroup";
    case VariableRetrievalMode::kAllReplicas:
      return "AllReplicas";
    case VariableRetrievalMode::kAllReduceReplicas:
      return "AllReduceReplicas";
  }
  return "";
}

VariableSettings::VariableSettings(std::int64_t stride, std::int64_t size, VariableRetrievalMode mode)
    : groups_(StrideAndSize{size == 1 ? 1 : stride, size}), mode_(mode) {
  if (stride < 1 || size < 1) {
    raise<ReplicaError>(
        "variable_settings: groups are too small, got stride {} and size {}, expected at least 1", stride,
        size);
  }
}

std::optional<std::pair<std::int64_t, std::int64_t>> VariableSettings::stride_and_size() const {
  const auto* given = std::get_if<StrideAndSize>(&groups_);
  if (given == nullptr) return std::nullopt;
  return std::pair(given->stride, given->size);
}

ReplicaGrouping VariableSettings::replica_grouping(std::int64_t replicas) const {
  struct Visitor {
    std::int64_t replicas;
    ReplicaGrouping operator()(const CommGroup& group) const { return group.to_replica_grouping(replicas); }
    ReplicaGrouping operator()(const StrideAndSize& groups) const {
      return ReplicaGrouping::from_stride(replicas, groups.stride, groups.size);
    }
    ReplicaGrouping operator()(const ReplicaGrouping& grouping) const {
      if (grouping.replicas() != replicas) {
        raise<ReplicaError>(
            "variable_settings: the grouping is of another replica count, got {} replicas, expected {}",
            replicas, grouping.replicas());
      }
      return grouping;
    }
  };
  return std::visit(Visitor{replicas}, groups_);
}

std::int64_t VariableSettings::group_count(std::int64_t replicas) const {
  if (const auto* group = std::get_if<CommGroup>(&groups_)) return group->num_groups(replicas);
  if (const auto* groups = std::get_if<StrideAndSize>(&groups_)) {
    return ReplicaGrouping::count_groups(replicas, groups->stride, groups->size);
  }
  return replica_grouping(replicas).num_groups();
}
std::int64_t VariableSettings::group_size(std::int64_t replicas) const {
  return replicas / group_count(replicas);
}
Replica VariableSettings::representative(std::int64_t replicas, std::int64_t group) const {
  return replica_grouping(replicas).group(group).front();
}
Replica VariableSettings::representative(std::int64_t group) const {
  if (const auto* grouping = std::get_if<ReplicaGrouping>(&groups_)) return grouping->group(group).front();
  const bool in_range = group >= 0 && group < kMaxReplicas;
  const std::int64_t first = in_range ? first_member(group).value_or(kMaxReplicas) : kMaxReplicas;
  if (first >= kMaxReplicas) {
    raise<ReplicaError>("variable_settings: no number of replicas has such a group of {}, got group {}",
                        to_string(), group);
  }
  return static_cast<Replica>(first);
}

std::optional<std::int64_t> VariableSettings::first_member(std::int64_t group) const {
  if (const auto* groups = std::get_if<StrideAndSize>(&groups_)) {
    const std::int64_t stride = std::min(groups->stride, kMaxReplicas);
    return group / stride * stride * std::min(groups->size, kMaxReplicas) + group % stride;
  }
  const CommGroup& groups = std::get<CommGroup>(groups_);
  if (groups.type() == CommGroupType::kConsecutive) return group * std::min(groups.size(), kMaxReplicas);
  if (groups.type() == CommGroupType::kAll && group != 0) return std::nullopt;
  return group;
}

std::int64_t VariableSettings::returned_count(std::int64_t replicas) const {
  const std::int64_t groups = group_count(replicas);
  return mode_ == VariableRetrievalMode::kAllReplicas ? replicas : groups;
}

Shape VariableSettings::shape_on_host(const Shape& shape, std::int64_t replicas) const {
  return with_rows(shape, group_count(replicas));
}

Shape VariableSettings::shape_on_replica(const Shape& full, std::int64_t replicas,
                                         std::string_view name) const {
  const std::int64_t groups = group_count(replicas);
  if (groups == 1) return full;
  if (full.empty() || full.front() != groups) {
    raise<ShapeError>(
        "shape_on_replica: first dimension is not the number of groups{}, got shape {}, expected [{}, ...]",
        name.empty() ? "" : fmt::format(" of '{}'", name), popsr::to_string(full), groups);
  }
  return {full.begin() + 1, full.end()};
}

Shape VariableSettings::returned_shape(const Shape& shape, std::int64_t replicas) const {
  return with_rows(shape, returned_count(replicas));
}

std::string VariableSettings::to_string() const {
  struct Visitor {
    std::string operator()(const CommGroup& group) const { return group.to_string(); }
    std::string operator()(const StrideAndSize& groups) const {
      return fmt::format("{}, {}", groups.stride, groups.size);
    }
    std::string operator()(const ReplicaGrouping& grouping) const { return grouping.to_string(); }
  };
  return fmt::format("VariableSettings({}, VariableRetrievalMode.{})", std::visit(Visitor{}, groups_),
                     popsr::to_string(mode_));
}

}  // namespace popsr
