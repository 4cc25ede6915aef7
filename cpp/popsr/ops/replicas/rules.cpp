#include "popsr/ops/replicas/rules.h"

#include <algorithm>
#include <unordered_map>

#include "popsr/base/error.h"
#include "popsr/ops/infer.h"

namespace popsr {
namespace {

/// key(r) = (part[r], index of r in its group).
std::vector<std::uint64_t> with_index(const ReplicaGrouping& group, std::vector<std::uint64_t> part) {
  std::vector<std::uint64_t> next(at(group.num_groups()), 0);
  for (std::size_t r = 0; r < part.size(); ++r) {
    part[r] = (part[r] << 32) | next[at(group.assignment()[r])]++;
  }
  return part;
}

}  // namespace

std::int64_t group_size_of(const Ir& ir, const Op& op) {
  const Attribute& group = op.attribute(kGroup.name);
  return std::holds_alternative<ReplicaGrouping>(group) ? std::get<ReplicaGrouping>(group).group_size()
                                                        : ir.replication();
}

std::int64_t checked_group_size(const InferContext& context) {
  const Attribute& attribute = context.op.attribute(kGroup.name);
  if (const auto* group = std::get_if<ReplicaGrouping>(&attribute)) {
    if (group->replicas() != context.ir.replication()) {
      raise<ReplicaError>("{}: group is of other replicas, got {} replicas, expected {}", context.name(),
                          group->replicas(), context.ir.replication());
    }
  }
  return group_size_of(context.ir, context.op);
}

void check_reduction(const InferContext& context) {
  const CollectiveOp op = context.get(kReduction);
  const std::string_view name = kReduction.name_of(op);
  const DType dtype = context.type(0).dtype;
  if (op == CollectiveOp::kAnd || op == CollectiveOp::kOr) {
    if (!is_float(dtype)) return;
    raise<DTypeError>("{}: '{}' of floats, got {}, expected bool or integers", context.name(), name,
                      describe(context, 0));
  }
  if (dtype == DType::kBool) {
    raise<DTypeError>("{}: '{}' of bool, got {}, expected numbers", context.name(), name,
                      describe(context, 0));
  }
}

PartitionId fact_of_keys(const RuleContext& context, const std::vector<std::uint64_t>& keys) {
  return context.table.meet(context.table.from_keys(keys), context.exec);
}

std::vector<std::uint64_t> sequence_ids(const ReplicaGrouping& group, std::span<const std::uint32_t> labels) {
  struct Known {
    std::span<const Replica> members;
    std::uint64_t id;
  };
  std::unordered_multimap<std::uint64_t, Known> known;
  std::vector<std::uint64_t> ids;
  ids.reserve(at(group.num_groups()));
  for (std::size_t r = 0; r < labels.size(); ++r) {
    // Groups are numbered in order of first appearance.
    if (at(group.assignment()[r]) != ids.size()) continue;
    const std::span<const Replica> members = group.members(static_cast<Replica>(r));
    const auto same = [&](Replica a, Replica b) { return labels[a] == labels[b]; };
    std::uint64_t hash = 0;
    for (const Replica member : members)
      hash = (hash ^ labels[member]) * 0x9E3779B97F4A7C15ULL + (hash >> 29);
    const auto [begin, end] = known.equal_range(hash);
    auto it = std::find_if(begin, end, [&](const auto& entry) {
      return std::ranges::equal(entry.second.members, members, same);
    });
    if (it == end) it = known.emplace(hash, Known{members, known.size()});
    ids.push_back(it->second.id);
  }
  return ids;
}

std::vector<std::uint64_t> sequence_of_replicas(const ReplicaGrouping& group,
                                                std::span<const std::uint32_t> labels) {
  const std::vector<std::uint64_t> ids = sequence_ids(group, labels);
  std::vector<std::uint64_t> keys(labels.size());
  for (std::size_t r = 0; r < keys.size(); ++r) keys[r] = ids[at(group.assignment()[r])];
  return keys;
}

PartitionId fact_of_group_keys(const RuleContext& context, GroupKeys keys, std::int64_t parameter) {
  const Attribute& attribute = context.op.attribute(kGroup.name);
  const auto* group = std::get_if<ReplicaGrouping>(&attribute);
  const PartitionId in = context.inputs.empty() ? context.table.top() : context.inputs[0];
  const RuleKey key{.rule = reinterpret_cast<std::uintptr_t>(keys),
                    .groups = group ? group->identity() : 0,
                    .parameter = parameter,
                    .in = in};
  const PartitionId fact = context.table.remember(key, group ? group->keep_alive() : nullptr, [&] {
    return context.table.from_keys(
        keys(group_of(context.ir, context.op), context.table.labels(in), parameter));
  });
  return context.table.meet(fact, context.exec);
}

PartitionId all_members_rule(const RuleContext& context, std::size_t) {
  return fact_of_group_keys(context, [](const ReplicaGrouping& group, std::span<const std::uint32_t> labels,
                                        std::int64_t) { return sequence_of_replicas(group, labels); });
}

PartitionId scatter_rule(const RuleContext& context, std::size_t) {
  return fact_of_group_keys(
      context, [](const ReplicaGrouping& group, std::span<const std::uint32_t> labels, std::int64_t) {
        return with_index(group, sequence_of_replicas(group, labels));
      });
}

std::vector<Witness> members_witness(const Ir& ir, const Op& op, std::size_t, Replica r, Replica s) {
  const ReplicaGrouping group = group_of(ir, op);
  const std::span<const Replica> of_r = group.members(r), of_s = group.members(s);
  std::vector<Witness> pairs;
  for (std::size_t k = 0; k < of_r.size(); ++k) {
    if (of_r[k] != of_s[k]) pairs.push_back({0, of_r[k], of_s[k]});
  }
  return pairs;
}

std::vector<Witness> own_witness(const Ir&, const Op&, std::size_t, Replica r, Replica s) {
  return {{0, r, s}};
}

PartitionId own_part_rule(const RuleContext& context, std::size_t) {
  return fact_of_group_keys(
      context, [](const ReplicaGrouping& group, std::span<const std::uint32_t> labels, std::int64_t) {
        return with_index(group, {labels.begin(), labels.end()});
      });
}

bool popart_all_members(const PopartContext& context, std::size_t output) {
  const bool all = group_size_of(context.ir, context.op) == context.ir.replication();
  return all || and_of_inputs(context, output);
}

bool popart_scatter(const PopartContext& context, std::size_t output) {
  return group_size_of(context.ir, context.op) == 1 && and_of_inputs(context, output);
}

}  // namespace popsr
