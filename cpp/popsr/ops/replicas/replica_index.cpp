// The index of the running replica: the source of differences between replicas without any data.
#include <cstring>

#include "popsr/base/error.h"
#include "popsr/exec/collective_kernel.h"
#include "popsr/ops/attributes.h"
#include "popsr/ops/infer.h"
#include "popsr/ops/loops/blocks.h"
#include "popsr/ops/registry.h"
#include "popsr/ops/replicas/rules.h"

namespace popsr {
namespace {

enum class IndexOf : std::uint8_t { kMember, kGroup };
constexpr Choice<IndexOf> kIndices[] = {{"index", IndexOf::kMember}, {"group", IndexOf::kGroup}};
constexpr ChoiceAttr<IndexOf> kWhat{"what", kIndices};

/// The replica's index in its group, or the number of its group.
std::int64_t index_of(const Op& op, const ReplicaGrouping& group, Replica replica) {
  return op.get(kWhat) == IndexOf::kGroup ? group.assignment()[replica] : group.index_in_group(replica);
}

std::vector<OutputDef> infer_replica_index(const InferContext& context) {
  checked_group_size(context);
  const DType dtype = context.get(kDType);
  if (dtype != DType::kInt32 && dtype != DType::kUInt32) {
    raise<DTypeError>("{}: dtype is not an index type, got {}, expected int32 or uint32", context.name(),
                      info(dtype).name);
  }
  return {{{dtype, {}}}};
}

/// key = the index itself.
PartitionId replica_index_rule(const RuleContext& context, std::size_t) {
  const auto keys = [](const ReplicaGrouping& group, std::span<const std::uint32_t>, std::int64_t of_group) {
    std::vector<std::uint64_t> result;
    for (Replica r = 0; r < static_cast<Replica>(group.replicas()); ++r) {
      result.push_back(
          static_cast<std::uint64_t>(of_group != 0 ? group.assignment()[r] : group.index_in_group(r)));
    }
    return result;
  };
  return fact_of_group_keys(context, keys, context.op.get(kWhat) == IndexOf::kGroup ? 1 : 0);
}

CollectiveKernel replica_index(const CollectiveSpec& spec) {
  const ReplicaGrouping group = group_of(spec.ir, spec.op);
  std::vector<std::uint32_t> indices;
  for (const Replica replica : spec.out_replicas) {
    indices.push_back(static_cast<std::uint32_t>(index_of(spec.op, group, replica)));
  }
  return [indices = std::move(indices), replicas = spec.out_replicas](const CollectiveRun& run) {
    for (std::size_t b = 0; b < indices.size(); ++b) {
      if (!run.active(replicas[b])) continue;
      std::memcpy(out_block(run, 0, b), &indices[b], sizeof(indices[b]));
    }
  };
}

}  // namespace

std::vector<OpDef> replica_index_ops() {
  return {{.name = "replica_index",
           .attrs = {optional(kGroup), optional(kWhat, IndexOf::kMember), optional(kDType, DType::kUInt32)},
           .infer = infer_replica_index,
           .kernel = {.collective = replica_index},
           .replicas = {.partition = replica_index_rule, .rule_text = "the index itself"}}};
}

}  // namespace popsr
