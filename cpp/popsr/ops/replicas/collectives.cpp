// Collectives between replicas. Members of a group take part in ascending replica order, so results are the
// same bits on every member and in every run.
#include <algorithm>
#include <map>
#include <utility>

#include "popsr/base/error.h"
#include "popsr/exec/collective_kernel.h"
#include "popsr/ops/attributes.h"
#include "popsr/ops/infer.h"
#include "popsr/ops/registry.h"
#include "popsr/ops/replicas/collective_kernels.h"
#include "popsr/ops/replicas/rules.h"

namespace popsr {
namespace {

// all_reduce

std::vector<OutputDef> infer_all_reduce(const InferContext& context) {
  checked_group_size(context);
  check_reduction(context);
  return same_as_input(context);
}

// all_gather

constexpr Attr<std::int64_t> kOuter{"outer"};
constexpr Attr<bool> kSharded{"configure_output_for_replicated_tensor_sharding"};

enum class GatherMode : std::uint8_t { kAuto, kNewAxis, kConcat, kMetaShape };
constexpr Choice<GatherMode> kGatherModes[] = {{"auto", GatherMode::kAuto},
                                               {"new_axis", GatherMode::kNewAxis},
                                               {"concat", GatherMode::kConcat},
                                               {"meta_shape", GatherMode::kMetaShape}};
constexpr ChoiceAttr<GatherMode> kOutputShape{"output_shape", kGatherModes};

/// Never kAuto.
GatherMode gather_mode(const Ir& ir, const Op& op) {
  const GatherMode mode = op.get(kOutputShape);
  if (mode != GatherMode::kAuto) return mode;
  return ir.tensor(op.inputs[0]).meta_shape.empty() ? GatherMode::kConcat : GatherMode::kMetaShape;
}

/// Scalars count as one row.
Shape gathered_input_shape(const Ir& ir, const Op& op) {
  const Shape& shape = ir.tensor(op.inputs[0]).type.shape;
  return shape.empty() && gather_mode(ir, op) != GatherMode::kNewAxis ? Shape{1} : shape;
}

/// Axis of the input (concat) or of the output (new_axis); shards are always in row 0.
std::int64_t gather_axis(const Ir& ir, const Op& op) {
  const GatherMode mode = gather_mode(ir, op);
  if (mode == GatherMode::kMetaShape) return 0;
  const std::size_t rank = gathered_input_shape(ir, op).size() + (mode == GatherMode::kNewAxis ? 1 : 0);
  return normalize_axis(op.def->name, op.get(kAxis), rank);
}

GatherLayout gather_layout(const Ir& ir, const Op& op) {
  const Shape shape = gathered_input_shape(ir, op);
  const std::int64_t axis = gather_axis(ir, op);
  GatherLayout layout;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    (static_cast<std::int64_t>(d) < axis ? layout.outer : layout.inner) *= shape[d];
  }
  return layout;
}

/// The shards of a group hold its meta shape, the last of them padded.
Shape whole_of_shards(const InferContext& context, std::int64_t group_size) {
  const Shape& whole = context.tensor(0).meta_shape;
  const std::int64_t shard = num_elements(context.type(0).shape);
  const std::int64_t elements = num_elements(whole);
  if (whole.empty() || (elements + group_size - 1) / group_size != shard) {
    raise<ShapeError>(
        "{}: input is not a shard of its meta shape, got {} with meta shape {} in groups of {}, expected {}",
        context.name(), describe(context, 0), to_string(whole), group_size,
        whole.empty() ? "a meta shape" : "ceil(elements / group size) elements");
  }
  return whole;
}

std::vector<OutputDef> infer_all_gather(const InferContext& context) {
  const std::int64_t group_size = checked_group_size(context);
  const GatherMode mode = gather_mode(context.ir, context.op);
  const DType dtype = context.type(0).dtype;
  if (mode == GatherMode::kMetaShape) return {{{dtype, whole_of_shards(context, group_size)}}};
  Shape shape = gathered_input_shape(context.ir, context.op);
  const std::int64_t axis = gather_axis(context.ir, context.op);
  if (mode == GatherMode::kNewAxis) {
    shape.insert(shape.begin() + axis, group_size);
  } else {
    shape[static_cast<std::size_t>(axis)] *= group_size;
  }
  return {{{dtype, std::move(shape)}}};
}

CollectiveKernel all_gather(const CollectiveSpec& spec) {
  return gather_kernel(spec, gather_layout(spec.ir, spec.op));
}

/// Gradient dt = this replica's part of dout, without a sum: right if dout is equal on all members.
GradValue all_gather_grad(Grad& g) {
  const GatherLayout layout = gather_layout(g.ir(), g.op());
  return g.call("replicated_gather_grad", {g.dy()},
                {kShape(g.in_type(0).shape), kOuter(layout.outer), g.same(kGroup)});
}

std::vector<OutputDef> infer_gather_grad(const InferContext& context) {
  checked_group_size(context);
  return {{{context.type(0).dtype, context.get(kShape)}}};
}

CollectiveKernel gather_grad(const CollectiveSpec& spec) {
  const std::int64_t outer = spec.op.get(kOuter);
  const std::int64_t elements = num_elements(spec.outputs[0].shape);
  return own_part_kernel(spec, {.outer = outer, .inner = outer == 0 ? 0 : elements / outer});
}

// reduce_scatter

std::vector<OutputDef> infer_reduce_scatter(const InferContext& context) {
  const std::int64_t group_size = checked_group_size(context);
  check_reduction(context);
  const std::int64_t chunk = (num_elements(context.type(0).shape) + group_size - 1) / group_size;
  const bool sharded = context.get(kSharded);
  return {{{context.type(0).dtype, {chunk}}, sharded ? context.type(0).shape : Shape{}}};
}

CollectiveKernel reduce_scatter(const CollectiveSpec& spec) { return reduce_kernel(spec, Receive::kChunk); }

// Scan: member k receives the reduction of members 0 to k

constexpr Attr<bool> kReverse{"reverse"};  ///< From the last member down to k.

std::vector<OutputDef> infer_scan(const InferContext& context) {
  checked_group_size(context);
  check_reduction(context);
  if (context.get(kReduction) == CollectiveOp::kMean) {
    raise<AttributeValueError>(
        "{}: members would have means of different numbers of values, got 'mean', "
        "expected 'add' or another reduction",
        context.name());
  }
  return same_as_input(context);
}

CollectiveKernel scan(const CollectiveSpec& spec) {
  return reduce_kernel(spec, spec.op.get(kReverse) ? Receive::kSuffix : Receive::kPrefix);
}

GradValue scan_grad(Grad& g) {
  return g.call("replicated_scan", {g.dy()}, {g.same(kGroup), kReverse(!g.get(kReverse))});
}

bool is_not_a_sum(const Op& op) { return op.get(kReduction) != CollectiveOp::kAdd; }

/// key(r) = labels of the members from the first, or the last, to r: a number for each such sequence.
std::vector<std::uint64_t> scan_keys(const ReplicaGrouping& group, std::span<const std::uint32_t> labels,
                                     std::int64_t reverse) {
  std::map<std::pair<std::uint64_t, std::uint32_t>, std::uint64_t> longer;
  std::vector<std::uint64_t> last(at(group.num_groups())), keys(labels.size());
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const std::size_t r = reverse != 0 ? labels.size() - 1 - i : i;
    std::uint64_t& sequence = last[at(group.assignment()[r])];
    sequence = longer.try_emplace({sequence, labels[r]}, longer.size() + 1).first->second;
    keys[r] = sequence;
  }
  return keys;
}

PartitionId scan_rule(const RuleContext& context, std::size_t) {
  return fact_of_group_keys(context, scan_keys, context.op.get(kReverse) ? 1 : 0);
}

/// Witnesses: members at the same place; the op distinguishes replicas at different places of their groups.
std::vector<Witness> scan_witness(const Ir& ir, const Op& op, std::size_t output, Replica r, Replica s) {
  const ReplicaGrouping group = group_of(ir, op);
  const auto takes_part = [&](Replica member, Replica replica) {
    return op.get(kReverse) ? member >= replica : member <= replica;
  };
  std::vector<Witness> pairs = members_witness(ir, op, output, r, s);
  std::erase_if(pairs, [&](const Witness& pair) { return !takes_part(pair.r, r) || !takes_part(pair.s, s); });
  return pairs;
}

/// dt = dout, which is equal in the group; of a mean a part of it.
GradValue whole_grad(Grad& g) {
  const GradValue whole = g.call("replicated_identical_grad", {g.dy()}, {g.same(kGroup)});
  if (g.get(kReduction) == CollectiveOp::kAdd) return whole;
  return g.scale(whole, 1.0 / static_cast<double>(group_size_of(g.ir(), g.op())));
}

ReplicaAspect own_part_of_gradient() {
  ReplicaAspect replicas = kOwnPart;
  replicas.expects_whole_gradient = true;
  return replicas;
}

OpDef all_reduce_def(std::string_view name, std::vector<Effect> effects) {
  return {.name = name,
          .inputs = {{"t", kNumbersAndBool}},
          .attrs = {optional(kReduction, CollectiveOp::kAdd), optional(kGroup)},
          .infer = infer_all_reduce,
          .kernel = {.collective = all_reduce, .fusion = all_reduce_fusion},
          .grad = {.of_whole = effects.empty() ? whole_grad : nullptr},
          .replicas = all_members(Collective::kReduce, kMultiAllReduce, all_reduce_chain),
          .memory = {.effects = std::move(effects)},
          .numerics = kRoundsOnce};
}

}  // namespace

std::vector<OpDef> collectives_ops() {
  return {
      // No gradient, as in PopXL: gradients stop at an all-reduce.
      all_reduce_def("replicated_all_reduce", {}),
      all_reduce_def("replicated_all_reduce_", {{.input = 0, .output = 0}}),
      {.name = "replicated_all_gather",
       .inputs = {{"t"}},
       .attrs = {optional(kAxis, 0), optional(kGroup), optional(kOutputShape, GatherMode::kAuto)},
       .infer = infer_all_gather,
       .kernel = {.collective = all_gather},
       .grad = per_input({all_gather_grad}),
       .replicas = all_members(Collective::kGather, kMultiAllGather)},
      {.name = "replicated_gather_grad",
       .inputs = {{"t"}},
       .attrs = {required(kShape), required(kOuter), optional(kGroup)},
       .infer = infer_gather_grad,
       .kernel = {.collective = gather_grad},
       .grad = {.missing = NoGrad::kThrows},
       .replicas = own_part_of_gradient(),
       .program = {.internal = true}},
      {.name = "replicated_reduce_scatter",
       .inputs = {{"t", kNumbersAndBool}},
       .attrs = {optional(kReduction, CollectiveOp::kAdd), optional(kGroup), optional(kSharded, false)},
       .infer = infer_reduce_scatter,
       .kernel = {.collective = reduce_scatter},
       .grad = {.missing = NoGrad::kThrows},
       .replicas = kReduceScatter,
       .numerics = kRoundsOnce},
      {.name = "replicated_scan",
       .inputs = {{"t", kNumbersAndBool}},
       .attrs = {optional(kReduction, CollectiveOp::kAdd), optional(kGroup), internal(kReverse, false)},
       .infer = infer_scan,
       .kernel = {.collective = scan},
       .grad = {.inputs = {scan_grad}, .missing = NoGrad::kThrows, .refuses = is_not_a_sum},
       .replicas = {.partition = scan_rule,
                    .rule_text = "the values of the members up to this one, in order",
                    .witness = scan_witness,
                    .popart = popart_scatter,
                    .peers = Peers::kGroup},
       .numerics = kRoundsOnce},
  };
}

}  // namespace popsr
