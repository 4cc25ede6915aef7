#include "popsr/analysis/gradients/gradient_sums.h"

#include <algorithm>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "popsr/ir/op_def.h"

namespace popsr {
namespace {

// More replicas have too many groupings to try all of constant stride.
constexpr std::int64_t kMaxSummed = 64;

/// Groups inside the blocks of `whole` that take one replica from each block of `parts` there; nullopt if
/// these have different sizes, or groups would.
std::optional<ReplicaGrouping> one_of_each(const PartitionTable& table, PartitionId whole,
                                           PartitionId parts) {
  const auto outer = table.labels(whole), inner = table.labels(parts);
  std::map<std::uint32_t, std::int64_t> met;  // replicas of a part so far
  std::map<std::pair<std::uint32_t, std::int64_t>, std::int64_t> groups;
  std::vector<std::int64_t> assignment, sizes;
  for (std::size_t r = 0; r < outer.size(); ++r) {
    const std::pair key(outer[r], met[inner[r]]++);
    const auto [it, fresh] = groups.emplace(key, static_cast<std::int64_t>(groups.size()));
    if (fresh) sizes.push_back(0);
    assignment.push_back(it->second);
    ++sizes[static_cast<std::size_t>(it->second)];
  }
  if (std::ranges::adjacent_find(sizes, std::not_equal_to<>()) != sizes.end()) return std::nullopt;
  return ReplicaGrouping::from_assignment(assignment);
}

}  // namespace

std::vector<ReplicaGrouping> candidate_groups(const Ir& ir) {
  const std::int64_t replicas = ir.replication();
  std::vector<ReplicaGrouping> groups;
  for (std::int64_t size = 2; size <= replicas && replicas <= kMaxSummed; ++size) {
    for (std::int64_t stride = 1; stride * size <= replicas; ++stride) {
      if (replicas % (stride * size) == 0)
        groups.push_back(ReplicaGrouping::from_stride(replicas, stride, size));
    }
  }
  const auto add = [&groups](const ReplicaGrouping& group) {
    if (std::ranges::find(groups, group) == groups.end()) groups.push_back(group);
  };
  for (const TensorId id : ir.graph(kMainGraph).tensors) {
    if (const auto& own = ir.tensor(id).state.grouping) add(*own);
  }
  for (const OpId id : ids<OpId>(ir.num_ops())) {
    const Op& op = ir.op(id);
    if (op.def->replicas.collective != Collective::kNone) add(group_of(ir, op));
  }
  return groups;
}

std::vector<ReplicaGrouping> candidate_groups(const Ir& ir, const GradientShare& share) {
  std::vector<ReplicaGrouping> groups = candidate_groups(ir);
  for (const PartitionId whole : {ir.partitions().top(), share.whole}) {
    for (const PartitionId parts : {share.equal, share.summed}) {
      if (auto group = one_of_each(ir.partitions(), whole, parts)) groups.push_back(std::move(*group));
    }
  }
  return groups;
}

std::optional<GroupSum> find_sum(const Ir& ir, const GradientShare& share, bool mean,
                                 const std::function<bool(const GradientShare&)>& holds) {
  for (const ReplicaGrouping& group : candidate_groups(ir, share)) {
    const auto after = reduced(ir.partitions(), share, group, mean);
    if (group.group_size() > 1 && after && holds(*after)) return GroupSum{group, mean};
  }
  return std::nullopt;
}

}  // namespace popsr
