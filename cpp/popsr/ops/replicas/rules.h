// Groups of a collective and its partition rules (specification: key of a replica -> block).
#pragma once

#include <vector>

#include "popsr/ir/op_def.h"
#include "popsr/ops/replicas/merged.h"

namespace popsr {

constexpr std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

/// Size of the groups of `group_of`, without making the grouping.
std::int64_t group_size_of(const Ir& ir, const Op& op);

/// Size of the groups; ReplicaError if the grouping is of another number of replicas.
std::int64_t checked_group_size(const InferContext& context);
/// Throws DTypeError unless the reduction accepts the dtype of input 0: and / or take bool and integers,
/// the others numbers.
void check_reduction(const InferContext& context);

/// Fact of an output: the partition of replicas with equal keys that execute together.
PartitionId fact_of_keys(const RuleContext& context, const std::vector<std::uint64_t>& keys);

/// Function that gives the keys of a rule from the op's groups, the labels of the replicas in input 0 and a
/// number.
using GroupKeys = std::vector<std::uint64_t> (*)(const ReplicaGrouping& group,
                                                 std::span<const std::uint32_t> labels,
                                                 std::int64_t parameter);
/// Cached fact_of_keys(), computed once for all ops whose arguments of `keys` are equal.
PartitionId fact_of_group_keys(const RuleContext& context, GroupKeys keys, std::int64_t parameter = 0);
/// Number for each replica that identifies the labels of its group's members in order.
std::vector<std::uint64_t> sequence_of_replicas(const ReplicaGrouping& group,
                                                std::span<const std::uint32_t> labels);

/// Number for each group, equal iff the members of the groups have the same labels in the same order.
std::vector<std::uint64_t> sequence_ids(const ReplicaGrouping& group, std::span<const std::uint32_t> labels);

/// Every member receives the same function of all members' values: key = labels of the members, in order.
PartitionId all_members_rule(const RuleContext& context, std::size_t output);
/// Member k receives part k of a function of all members' values: key = (labels of the members, k).
PartitionId scatter_rule(const RuleContext& context, std::size_t output);
/// Witnesses of both rules: members at the same place of the two groups.
std::vector<Witness> members_witness(const Ir& ir, const Op& op, std::size_t output, Replica r, Replica s);
/// Witnesses of a function of a member's own value.
std::vector<Witness> own_witness(const Ir& ir, const Op& op, std::size_t output, Replica r, Replica s);
/// Member k receives part k of its own value: key = (label, k).
PartitionId own_part_rule(const RuleContext& context, std::size_t output);

/// Mode "popart" of all-reduces and all-gathers: equal when one group holds all replicas.
bool popart_all_members(const PopartContext& context, std::size_t output);
/// Mode "popart" of a reduce-scatter: unequal in groups of more than one.
bool popart_scatter(const PopartContext& context, std::size_t output);

/// Aspect of collectives that give every member the same function of all members' values.
constexpr ReplicaAspect all_members(Collective collective, std::string_view merged = {},
                                    ChainFn chain = nullptr) {
  return {.partition = all_members_rule,
          .rule_text = "equal in a group, and in groups whose members agree in order",
          .witness = members_witness,
          .popart = popart_all_members,
          .collective = collective,
          .peers = Peers::kGroup,
          .chain = chain,
          .merged = merged};
}
/// Aspect of collectives that give member k part k of a function of all members' values.
inline constexpr ReplicaAspect kScatter{.partition = scatter_rule,
                                        .rule_text = "place in the group, and the values of all members",
                                        .witness = members_witness,
                                        .peers = Peers::kGroup};
inline constexpr ReplicaAspect kReduceScatter{.partition = kScatter.partition,
                                              .rule_text = kScatter.rule_text,
                                              .witness = kScatter.witness,
                                              .popart = popart_scatter,
                                              .collective = Collective::kReduce,
                                              .peers = kScatter.peers,
                                              .merged = kMultiReduceScatter};
/// Aspect of ops in which member k takes part k of its own value.
inline constexpr ReplicaAspect kOwnPart{.partition = own_part_rule,
                                        .rule_text = "place in the group, and meet of inputs",
                                        .witness = own_witness};

}  // namespace popsr
