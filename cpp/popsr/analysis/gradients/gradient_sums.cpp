#include "popsr/analysis/gradients/gradient_sums.h"

#include <algorithm>
#include <vector>

#include "popsr/ir/op_def.h"

namespace popsr {
namespace {

// More replicas have too many groupings to try all of constant stride.
constexpr std::int64_t kMaxTried = 64;

}  // namespace

std::vector<ReplicaGrouping> candidate_groups(const Ir& ir) {
  const std::int64_t replicas = ir.replication();
  std::vector<ReplicaGrouping> groups;
  for (std::int64_t size = 2; size <= replicas && replicas <= kMaxTried; ++size) {
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

std::optional<GroupSum> sum_that(const Ir& ir, const GradientShare& share, bool mean,
                                 const std::function<bool(const GradientShare&)>& holds) {
  for (const ReplicaGrouping& group : candidate_groups(ir)) {
    const auto after = reduced(ir.partitions(), share, group, mean);
    if (group.group_size() > 1 && after && holds(*after)) return GroupSum{group, mean};
  }
  return std::nullopt;
}

}  // namespace popsr
