#include "popsr/replica/replica_grouping.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "popsr/base/error.h"
#include "popsr/replica/limits.h"

namespace popsr {
namespace {

// Longer lists show their ends only, as do tables of more rows.
constexpr std::int64_t kMaxMembersShown = 16, kMaxRowsShown = 8;
constexpr std::int64_t kFirstShown = 3, kLastShown = 2;
constexpr std::size_t kMaxText = 160;  // longer texts show the ends of the assignment only

void check_replicas(std::int64_t replicas) {
  if (replicas < 1 || replicas > kMaxReplicas) {
    raise<ReplicaError>("replica_grouping: replica count out of range, got {}, expected 1 to {}", replicas,
                        kMaxReplicas);
  }
}

/// "0, 4, 8, 12" or "0, 1, 2, ..., 62, 63"
template <class Items>
std::string list_of(const Items& items) {
  const std::span all(items);
  if (std::ssize(all) <= kMaxMembersShown) return fmt::format("{}", fmt::join(all, ", "));
  return fmt::format("{}, ..., {}", fmt::join(all.first(kFirstShown), ", "),
                     fmt::join(all.last(kLastShown), ", "));
}

/// The distance of all neighbours in all groups of that size; 0 when they differ. Singletons count as 1.
std::int64_t stride_of(std::span<const Replica> members, std::size_t size) {
  if (size == 1) return 1;
  const auto gap = [&members](std::size_t i) {
    return static_cast<std::int64_t>(members[i]) - static_cast<std::int64_t>(members[i - 1]);
  };
  for (std::size_t i = 1; i < members.size(); ++i) {
    if (i % size != 0 && gap(i) != gap(1)) return 0;
  }
  return gap(1);
}

}  // namespace

ReplicaGrouping::ReplicaGrouping(std::vector<std::int64_t> assignment) {
  auto tables = std::make_shared<Tables>();
  tables->num_groups = 1 + *std::ranges::max_element(assignment);
  const std::size_t size = assignment.size() / static_cast<std::size_t>(tables->num_groups);
  tables->members.resize(assignment.size());
  std::vector<std::size_t> filled(static_cast<std::size_t>(tables->num_groups), 0);
  for (std::size_t r = 0; r < assignment.size(); ++r) {
    const auto group = static_cast<std::size_t>(assignment[r]);
    tables->members[group * size + filled[group]++] = static_cast<Replica>(r);
  }
  tables->stride = stride_of(tables->members, size);
  tables->assignment = std::move(assignment);
  tables_ = std::move(tables);
}

namespace {

struct StrideAndSize {
  std::int64_t stride, size;
};

/// The arguments of from_stride, completed and checked.
StrideAndSize checked_stride(std::int64_t replicas, std::int64_t stride,
                             std::optional<std::int64_t> group_size) {
  check_replicas(replicas);
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
  return {stride, size};
}

}  // namespace

std::int64_t ReplicaGrouping::count_groups(std::int64_t replicas, std::int64_t stride,
                                           std::optional<std::int64_t> group_size) {
  return replicas / checked_stride(replicas, stride, group_size).size;
}

ReplicaGrouping ReplicaGrouping::from_stride(std::int64_t replicas, std::int64_t stride,
                                             std::optional<std::int64_t> group_size) {
  const StrideAndSize groups = checked_stride(replicas, stride, group_size);
  std::vector<std::int64_t> assignment(static_cast<std::size_t>(replicas));
  for (std::int64_t r = 0; r < replicas; ++r) {
    assignment[static_cast<std::size_t>(r)] =
        r % groups.stride + groups.stride * (r / (groups.stride * groups.size));
  }
  return ReplicaGrouping(std::move(assignment));
}

ReplicaGrouping ReplicaGrouping::from_assignment(std::span<const std::int64_t> assignment) {
  if (assignment.empty())
    raise<ReplicaError>("replica_grouping: empty assignment, got [], expected one group a replica");
  check_replicas(static_cast<std::int64_t>(assignment.size()));
  std::vector<std::int64_t> counts;
  for (std::size_t r = 0; r < assignment.size(); ++r) {
    const std::int64_t group = assignment[r];
    if (group < 0 || group > static_cast<std::int64_t>(counts.size())) {
      raise<ReplicaError>(
          "replica_grouping: groups are not numbered from 0 in order of first appearance, got [{}] with "
          "group {} at replica {}, expected 0 to {} there",
          list_of(assignment), group, r, counts.size());
    }
    if (group == static_cast<std::int64_t>(counts.size())) counts.push_back(0);
    ++counts[static_cast<std::size_t>(group)];
  }
  if (std::ranges::adjacent_find(counts, std::not_equal_to<>()) != counts.end()) {
    raise<ReplicaError>(
        "replica_grouping: groups differ in size, got [{}] with sizes {} to {}, expected equal sizes",
        list_of(assignment), std::ranges::min(counts), std::ranges::max(counts));
  }
  return ReplicaGrouping({assignment.begin(), assignment.end()});
}

std::uint64_t ReplicaGrouping::identity() const {
  // Odd, as no address is.
  if (is_const())
    return static_cast<std::uint64_t>(stride()) << 32 | static_cast<std::uint64_t>(group_size()) << 1 | 1;
  return reinterpret_cast<std::uintptr_t>(tables_.get());
}

std::span<const Replica> ReplicaGrouping::members(Replica replica) const {
  const auto size = static_cast<std::size_t>(group_size());
  return std::span(all_members()).subspan(static_cast<std::size_t>(assignment()[replica]) * size, size);
}

std::span<const Replica> ReplicaGrouping::group(std::int64_t group) const {
  if (group < 0 || group >= num_groups()) {
    raise<ReplicaError>("replica_grouping: there is no such group, got {}, expected 0 to {}", group,
                        num_groups() - 1);
  }
  const auto size = static_cast<std::size_t>(group_size());
  return std::span(all_members()).subspan(static_cast<std::size_t>(group) * size, size);
}

std::int64_t ReplicaGrouping::index_in_group(Replica replica) const {
  const std::span<const Replica> group = members(replica);
  return std::ranges::lower_bound(group, replica) - group.begin();
}

ReplicaGrouping ReplicaGrouping::transpose() const {
  // Number the new groups by first appearance, as every assignment is.
  std::vector<std::int64_t> fresh(static_cast<std::size_t>(group_size()), -1);
  std::vector<std::int64_t> assignment(static_cast<std::size_t>(replicas()));
  std::int64_t next = 0;
  for (std::size_t r = 0; r < assignment.size(); ++r) {
    std::int64_t& label = fresh[static_cast<std::size_t>(index_in_group(static_cast<Replica>(r)))];
    if (label < 0) label = next++;
    assignment[r] = label;
  }
  return ReplicaGrouping(std::move(assignment));
}

ReplicaGrouping ReplicaGrouping::const_grouping() const {
  if (is_const()) return *this;
  const auto size = static_cast<std::size_t>(group_size());
  // Distance to the member before; 0 at the start of a group, where a part starts as well.
  std::vector<std::int64_t> gaps(all_members().size(), 0);
  std::int64_t stride = replicas();
  for (std::size_t i = 0; i < all_members().size(); ++i) {
    if (i % size == 0) continue;
    gaps[i] = static_cast<std::int64_t>(all_members()[i]) - static_cast<std::int64_t>(all_members()[i - 1]);
    stride = std::min(stride, gaps[i]);
  }
  std::int64_t common = 0;
  std::int64_t length = 0;
  for (const std::int64_t gap : gaps) {
    if (gap != stride) common = std::gcd(common, std::exchange(length, 0));
    ++length;
  }
  common = std::gcd(common, length);
  // The parts tile each class of replicas modulo the stride, so parts of the common size tile the replicas.
  return from_stride(replicas(), common == 1 ? 1 : stride, common);
}

std::vector<std::int64_t> ReplicaGrouping::to_device_map() const {
  const ReplicaGrouping parts = const_grouping();
  std::vector<std::int64_t> map(static_cast<std::size_t>(parts.num_groups()));
  for (std::size_t r = 0; r < assignment().size(); ++r) {
    map[static_cast<std::size_t>(parts.assignment()[r])] = assignment()[r];
  }
  return map;
}

std::vector<std::int64_t> ReplicaGrouping::to_host_map() const {
  const ReplicaGrouping parts = const_grouping();
  std::vector<std::int64_t> map(static_cast<std::size_t>(num_groups()));
  for (std::int64_t g = 0; g < num_groups(); ++g) {
    map[static_cast<std::size_t>(g)] = parts.assignment()[group(g).front()];
  }
  return map;
}

Partition ReplicaGrouping::partition() const {
  return Partition::from_labels(std::vector<std::uint64_t>(assignment().begin(), assignment().end()));
}

PartitionId ReplicaGrouping::partition(PartitionTable& table) const {
  return table.remember({.groups = identity()}, tables_, [&] {
    return table.from_keys(std::vector<std::uint64_t>(assignment().begin(), assignment().end()));
  });
}

std::string ReplicaGrouping::to_string() const {
  if (is_const()) {
    return fmt::format("ReplicaGrouping(num_replicas={}, stride={}, group_size={}, num_groups={})",
                       replicas(), stride(), group_size(), num_groups());
  }
  std::string text = fmt::format("ReplicaGrouping(assignment=[{}])", fmt::join(assignment(), ", "));
  if (text.size() <= kMaxText) return text;
  return fmt::format("ReplicaGrouping(assignment=[{}], num_replicas={}, group_size={}, num_groups={})",
                     list_of(assignment()), replicas(), group_size(), num_groups());
}

std::string ReplicaGrouping::table() const {
  std::vector<std::string> lines;
  const auto add_rows = [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t g = begin; g < end; ++g)
      lines.push_back(fmt::format("{:>5} | {}", g, list_of(group(g))));
  };
  if (num_groups() <= kMaxRowsShown) {
    add_rows(0, num_groups());
  } else {
    add_rows(0, kFirstShown);
    lines.emplace_back("  ... | ...");
    add_rows(num_groups() - kLastShown, num_groups());
  }
  const std::string head = "Group | Replicas";
  std::size_t width = head.size();
  for (const std::string& line : lines) width = std::max(width, line.size());
  std::string rule(width, '-');
  rule[head.find('|')] = '+';
  return fmt::format("{}\n{}\n{}", head, rule, fmt::join(lines, "\n"));
}

}  // namespace popsr
