// Collectives that move values and compute nothing: broadcast, all-to-all, permute, and slices of a replica's
// own value.
#include <algorithm>
#include <cstring>
#include <functional>
#include <optional>

#include "popsr/base/error.h"
#include "popsr/exec/collective_kernel.h"
#include "popsr/ops/attributes.h"
#include "popsr/ops/infer.h"
#include "popsr/ops/loops/blocks.h"
#include "popsr/ops/loops/tiles.h"
#include "popsr/ops/registry.h"
#include "popsr/ops/replicas/collective_kernels.h"
#include "popsr/ops/replicas/rules.h"

namespace popsr {
namespace {

constexpr Attr<std::vector<std::int64_t>> kMapping{"mapping"};

/// The source replica of a replica's value; none: zeros.
using SourceOf = std::function<std::optional<Replica>(Replica)>;

CollectiveKernel move_kernel(const CollectiveSpec& spec, const SourceOf& source_of) {
  std::vector<std::optional<std::uint32_t>> sources;  // Input block per output block.
  for (const Replica replica : spec.out_replicas) {
    const std::optional<Replica> source = source_of(replica);
    sources.push_back(source ? std::optional(spec.in_labels[0][*source]) : std::nullopt);
  }
  const std::int64_t elements = num_elements(spec.outputs[0].shape);
  return [sources = std::move(sources), replicas = spec.out_replicas, elements,
          bytes = at(elements) * size_of(spec.outputs[0].dtype)](const CollectiveRun& run) {
    if (bytes == 0) return;
    const auto blocks = static_cast<std::int64_t>(sources.size());
    parallel_for(run.pool, blocks, 1, blocks * elements, [&](std::int64_t from, std::int64_t to) {
      for (std::int64_t b = from; b < to; ++b) {
        if (!run.active(replicas[at(b)])) continue;
        std::byte* out = out_block(run, 0, b);
        const auto source = sources[at(b)];
        if (source) {
          std::memcpy(out, in_block(run, 0, *source), bytes);
        } else {
          std::memset(out, 0, bytes);
        }
      }
    });
  };
}

std::vector<OutputDef> same_type(const InferContext& context) { return {{context.type(0)}}; }

// Broadcast

std::vector<OutputDef> infer_broadcast(const InferContext& context) {
  const std::int64_t group_size = checked_group_size(context);
  const std::int64_t root = context.get(kRoot);
  if (root < 0 || root >= group_size) {
    raise<OutOfRangeError>("{}: root is outside its group, got {}, expected 0 to {}", context.name(), root,
                           group_size - 1);
  }
  return same_type(context);
}

CollectiveKernel broadcast(const CollectiveSpec& spec) {
  const ReplicaGrouping group = group_of(spec.ir, spec.op);
  const std::size_t root = at(spec.op.get(kRoot));
  return move_kernel(spec, [&](Replica replica) { return group.members(replica)[root]; });
}

/// key = label of the group's root.
PartitionId broadcast_rule(const RuleContext& context, std::size_t) {
  const auto keys = [](const ReplicaGrouping& group, std::span<const std::uint32_t> labels,
                       std::int64_t root) {
    std::vector<std::uint64_t> result;
    for (Replica r = 0; r < labels.size(); ++r) result.push_back(labels[group.members(r)[at(root)]]);
    return result;
  };
  return fact_of_group_keys(context, keys, context.op.get(kRoot));
}

std::vector<Witness> root_witness(const Ir& ir, const Op& op, std::size_t, Replica r, Replica s) {
  const ReplicaGrouping group = group_of(ir, op);
  const std::size_t root = at(op.get(kRoot));
  return {{0, group.members(r)[root], group.members(s)[root]}};
}

/// The root receives the sum of its group's gradients, the others zeros.
GradValue replicated_broadcast_grad(Grad& g) {
  return g.call("replicated_broadcast_grad", {g.dy()}, {g.same(kRoot), g.same(kGroup)});
}

CollectiveKernel broadcast_grad(const CollectiveSpec& spec) { return reduce_kernel(spec, Receive::kRoot); }

/// key = labels of the members in order on the root; one class of zeros elsewhere.
PartitionId root_alone_rule(const RuleContext& context, std::size_t) {
  const auto keys = [](const ReplicaGrouping& group, std::span<const std::uint32_t> labels,
                       std::int64_t root) {
    std::vector<std::uint64_t> result = sequence_of_replicas(group, labels);
    for (Replica r = 0; r < result.size(); ++r) {
      result[r] = group.index_in_group(r) == root ? result[r] + 1 : 0;
    }
    return result;
  };
  return fact_of_group_keys(context, keys, context.op.get(kRoot));
}

// all_to_all and slice: parts along an axis

std::int64_t axis_of(const Ir& ir, const Op& op) {
  return normalize_axis(op.def->name, op.get(kAxis), ir.tensor(op.inputs[0]).type.shape.size());
}

/// Extent of a part; ShapeError when the axis does not divide.
std::int64_t part_extent(const InferContext& context) {
  const std::int64_t group_size = checked_group_size(context);
  const std::int64_t axis = axis_of(context.ir, context.op);
  const std::int64_t extent = context.type(0).shape[at(axis)];
  if (extent % group_size != 0) {
    raise<ShapeError>("{}: axis {} does not divide into parts, got {} in groups of {}, expected a multiple",
                      context.name(), axis, describe(context, 0), group_size);
  }
  return extent / group_size;
}

/// The pieces of one part of a value of the shape of input 0.
GatherLayout part_layout(const Ir& ir, const Op& op) {
  const Shape& shape = ir.tensor(op.inputs[0]).type.shape;
  const std::size_t axis = at(axis_of(ir, op));
  GatherLayout layout{.outer = 1, .inner = shape[axis] / group_size_of(ir, op)};
  for (std::size_t d = 0; d < axis; ++d) layout.outer *= shape[d];
  for (std::size_t d = axis + 1; d < shape.size(); ++d) layout.inner *= shape[d];
  return layout;
}

std::vector<OutputDef> infer_all_to_all(const InferContext& context) {
  part_extent(context);
  return same_type(context);
}

CollectiveKernel all_to_all(const CollectiveSpec& spec) {
  return all_to_all_kernel(spec, part_layout(spec.ir, spec.op));
}

/// Gradient by the inverse exchange, which is the same one: part j of member k goes to member j as its part
/// k.
GradValue all_to_all_grad(Grad& g) {
  return g.call("replicated_all_to_all", {g.dy()}, {g.same(kAxis), g.same(kGroup)});
}

std::vector<OutputDef> infer_slice(const InferContext& context) {
  TensorType type = context.type(0);
  type.shape[at(axis_of(context.ir, context.op))] = part_extent(context);
  return {{std::move(type)}};
}

CollectiveKernel slice(const CollectiveSpec& spec) {
  return own_part_kernel(spec, part_layout(spec.ir, spec.op));
}

GradValue gather(Grad& g, NamedAttribute axis) {
  return g.call("replicated_all_gather", {g.dy()},
                {std::move(axis), g.same(kGroup), {"output_shape", std::string("concat")}});
}

GradValue slice_grad(Grad& g) { return gather(g, g.same(kAxis)); }

// replica_sharded_slice

std::vector<OutputDef> infer_sharded_slice(const InferContext& context) {
  const std::int64_t group_size = checked_group_size(context);
  const auto& [dtype, shape] = context.type(0);
  return {{{dtype, {(num_elements(shape) + group_size - 1) / group_size}}, shape}};
}

CollectiveKernel sharded_slice(const CollectiveSpec& spec) {
  return own_part_kernel(spec, {.outer = 1, .inner = num_elements(spec.outputs[0].shape)});
}

/// The gathered gradients of all shards without the padding of the last one.
GradValue sharded_slice_grad(Grad& g) {
  using Ints = std::vector<std::int64_t>;
  const GradValue padded = gather(g, kAxis(0)).now();
  const std::int64_t elements = num_elements(g.in_type(0).shape);
  const bool exact = num_elements(padded.type().shape) == elements;
  const GradValue flat =
      exact ? padded : g.call("slice", {padded}, {{"start", Ints{0}}, {"stop", Ints{elements}}});
  return g.reshape(flat, g.in_type(0).shape);
}

// Permute: "mapping" is the destination of each source, -1 for none

const std::vector<std::int64_t>& mapping_of(const Op& op) { return op.get(kMapping); }

std::vector<OutputDef> infer_permute(const InferContext& context) {
  const std::vector<std::int64_t>& mapping = mapping_of(context.op);
  const std::int64_t replicas = context.ir.replication();
  if (static_cast<std::int64_t>(mapping.size()) != replicas) {
    raise<ReplicaError>("{}: mapping is of other replicas, got {} destinations, expected {}", context.name(),
                        mapping.size(), replicas);
  }
  std::vector<bool> taken(mapping.size(), false);
  for (std::size_t source = 0; source < mapping.size(); ++source) {
    const std::int64_t to = mapping[source];
    if (to < -1 || to >= replicas) {
      raise<OutOfRangeError>("{}: no such destination, got {} for replica {}, expected 0 to {} or -1",
                             context.name(), to, source, replicas - 1);
    }
    if (to >= 0 && taken[at(to)]) {
      raise<ReplicaError>("{}: two sources of one replica, got {} twice, expected distinct destinations",
                          context.name(), to);
    }
    if (to >= 0) taken[at(to)] = true;
  }
  return same_type(context);
}

/// The source of each replica; none where nothing arrives.
std::vector<std::optional<Replica>> sources_of(const Op& op) {
  const std::vector<std::int64_t>& mapping = mapping_of(op);
  std::vector<std::optional<Replica>> sources(mapping.size());
  for (std::size_t source = 0; source < mapping.size(); ++source) {
    if (mapping[source] >= 0) sources[at(mapping[source])] = static_cast<Replica>(source);
  }
  return sources;
}

CollectiveKernel permute(const CollectiveSpec& spec) {
  const auto sources = sources_of(spec.op);
  return move_kernel(spec, [&sources](Replica replica) { return sources[replica]; });
}

/// key = label of the source; one class of zeros where nothing arrives.
PartitionId permute_rule(const RuleContext& context, std::size_t) {
  const auto labels = context.table.labels(context.inputs[0]);
  std::vector<std::uint64_t> keys;
  for (const auto source : sources_of(context.op)) keys.push_back(source ? 1 + labels[*source] : 0);
  return fact_of_keys(context, keys);
}

std::vector<Witness> source_witness(const Ir&, const Op& op, std::size_t, Replica r, Replica s) {
  const auto sources = sources_of(op);
  if (!sources[r] || !sources[s]) return {};
  return {{0, *sources[r], *sources[s]}};
}

/// Gradient by sending values back to their sources; a value that was sent nowhere has none.
GradValue permute_grad(Grad& g) {
  std::vector<std::int64_t> back;
  for (const auto source : sources_of(g.op()))
    back.push_back(source ? static_cast<std::int64_t>(*source) : -1);
  return g.call("replicated_permute", {g.dy()}, {kMapping(std::move(back))});
}

std::vector<OpDef> broadcast_ops() {
  return {
      {.name = "replicated_broadcast",
       .inputs = {{"t"}},
       .attrs = {optional(kRoot, 0), optional(kGroup)},
       .infer = infer_broadcast,
       .kernel = {.collective = broadcast},
       .grad = per_input({replicated_broadcast_grad}),
       .replicas = {.partition = broadcast_rule,
                    .rule_text = "partition of the roots of the groups",
                    .witness = root_witness,
                    .collective = Collective::kBroadcast,
                    .peers = Peers::kGroup}},
      {.name = "replicated_broadcast_grad",
       .inputs = {{"t", kNumbersAndBool}},
       .attrs = {required(kRoot), optional(kReduction, CollectiveOp::kAdd), optional(kGroup)},
       .infer = infer_broadcast,
       .kernel = {.collective = broadcast_grad},
       .grad = {.missing = NoGrad::kThrows},
       .replicas = {.partition = root_alone_rule,
                    .rule_text = "a root by the values of all members; equal elsewhere",
                    .witness = members_witness,
                    .peers = Peers::kGroup,
                    .zero_fill = true},
       .numerics = kRoundsOnce,
       .program = {.internal = true}},
  };
}

}  // namespace

std::vector<OpDef> collective_moves_ops() {
  const std::vector<AttrDef> along_axis = {optional(kAxis, 0), optional(kGroup)};
  std::vector<OpDef> ops = {
      {.name = "replicated_all_to_all",
       .inputs = {{"t"}},
       .attrs = along_axis,
       .infer = infer_all_to_all,
       .kernel = {.collective = all_to_all},
       .grad = per_input({all_to_all_grad}),
       .replicas = kScatter},
      {.name = "replicated_permute",
       .inputs = {{"t"}},
       .attrs = {required(kMapping)},
       .infer = infer_permute,
       .kernel = {.collective = permute},
       .grad = per_input({permute_grad}),
       .replicas = {.partition = permute_rule,
                    .rule_text = "the sources'; equal where nothing arrives",
                    .witness = source_witness,
                    .peers = Peers::kAll,
                    .zero_fill = true}},
      {.name = "replicated_slice",
       .inputs = {{"t"}},
       .attrs = along_axis,
       .infer = infer_slice,
       .kernel = {.collective = slice},
       .grad = per_input({slice_grad}),
       .replicas = kOwnPart},
      {.name = "replica_sharded_slice",
       .inputs = {{"t"}},
       .attrs = {optional(kGroup)},
       .infer = infer_sharded_slice,
       .kernel = {.collective = sharded_slice},
       .grad = per_input({sharded_slice_grad}),
       .replicas = kOwnPart},
  };
  for (OpDef& op : broadcast_ops()) ops.push_back(std::move(op));
  return ops;
}

}  // namespace popsr
