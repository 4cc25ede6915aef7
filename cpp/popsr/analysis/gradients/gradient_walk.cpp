#include "popsr/analysis/gradients/gradient_walk.h"

#include <algorithm>

#include "popsr/base/error.h"
#include "popsr/effects/memory.h"

namespace popsr {
namespace {

using ShareId = GradientWalk::ShareId;

}  // namespace

GradientWalk::GradientWalk(GradientFlow& flow, ContextId context, const std::vector<ShareId>& inputs)
    : flow_(flow),
      ir_(flow.ir_),
      table_(flow.table_),
      context_(flow.facts().context(context)),
      id_(context),
      graph_(ir_.graph(context_.graph)),
      made_(ir_.gradient_graph(context_.graph)),
      shares_(graph_.tensors.size()) {
  start(inputs);
}

/// The shares and facts that the graph starts with.
void GradientWalk::start(const std::vector<ShareId>& inputs) {
  const std::vector<TensorId>& entry = flow_.facts().entry_tensors(graph_.id);
  for (std::size_t i = 0; i < entry.size(); ++i) shares_[ir_.storage_index(entry[i])] = inputs[i];
  if (graph_.has_views) {
    memory_.emplace(flow_.facts().entry_memory(context_));
    return;
  }
  now_.resize(shares_.size(), context_.exec);
  for (std::size_t i = 0; i < entry.size(); ++i)
    now_[ir_.storage_index(entry[i])] = table_.meet(context_.inputs[i], context_.exec);
}

GradientFlow::Result GradientWalk::run() {
  step_until(static_cast<std::uint32_t>(graph_.ops.size()));
  GradientFlow::Result result;
  result.outputs.reserve(graph_.outputs.size());
  for (const TensorId output : graph_.outputs) result.outputs.push_back(read(output));
  const std::vector<TensorId>& entry = flow_.facts().entry_tensors(graph_.id);
  result.inputs.reserve(entry.size());
  for (const TensorId input : entry) result.inputs.push_back(read(input));
  result.memory = std::move(shares_);
  return result;
}

ShareId GradientWalk::share_after(TensorId tensor, std::uint32_t end) {
  step_until(end);
  return read(tensor);
}

void GradientWalk::step_until(std::uint32_t end) {
  const FlatSchedule& schedule = flow_.facts().schedule(graph_.id);
  for (std::uint32_t at = 0; at < end; ++at) {
    if (schedule[at].alone) {
      step({schedule, at}, context_.ops.outputs(at));
      continue;
    }
    const Op& op = ir_.op(schedule[at].id);
    if (op.def->program.control != Control::kNone) {
      step_graphs(op);
    } else if (op.schedule.parts.empty()) {
      step(op, context_.ops.outputs(at));
    } else {
      for (const OpId part : op.schedule.parts)
        step(ir_.op(part), facts_of(ir_, context_, ir_.op(part)).outputs);
    }
  }
}

ShareId GradientWalk::read(TensorId tensor) const {
  const std::uint32_t slot = ir_.storage_index(tensor);
  return graph_.has_views || slot == kNone ? read_shared(tensor) : shares_[slot];
}

/// Share of a view or a remote entry.
ShareId GradientWalk::read_shared(TensorId tensor) const {
  if (ir_.storage_index(tensor) == kNone) {
    const auto it = flow_.remote_.find(tensor);
    return it == flow_.remote_.end() ? GradientFlow::kPlain : it->second;
  }
  ShareId share;
  for_each_root(ir_, tensor,
                [&](TensorId root) { share = flow_.merge(share, shares_[ir_.storage_index(root)]); });
  return share;
}

TensorId GradientWalk::storage_of(TensorId tensor) const {
  const std::uint32_t slot = ir_.storage_index(tensor);
  return slot == kNone ? ir_.tensor(tensor).memory.storage : graph_.tensors[slot];
}

PartitionId GradientWalk::fact(TensorId tensor) const {
  const std::uint32_t slot = ir_.storage_index(tensor);
  if (slot == kNone) return table_.top();
  return memory_ ? memory_->read(tensor, slot) : now_[slot];
}

void GradientWalk::write_fact(TensorId tensor, PartitionId fact) {
  const std::uint32_t slot = ir_.storage_index(tensor);
  if (slot == kNone) return;
  if (memory_) {
    memory_->write(tensor, slot, fact);
  } else {
    now_[slot] = fact;
  }
}

void GradientWalk::write(const WalkedOp& op, TensorId tensor, ShareId share) {
  const std::uint32_t slot = ir_.storage_index(tensor);
  if (slot == kNone) return write_remote(op, tensor, share);
  if (graph_.has_views) return write_shared(op, tensor, share);
  const TensorId storage = graph_.tensors[slot];
  if (share != GradientFlow::kPlain && flow_.differentiated_.contains(storage))
    return check_update(op, storage, share);
  shares_[slot] = share;
}

void GradientWalk::write_remote(const WalkedOp& op, TensorId entry, ShareId share) {
  if (flow_.differentiated_.contains(entry)) return check_update(op, entry, share);
  ShareId& stored = flow_.remote_[entry];
  stored = flow_.merge(stored, share);
}

void GradientWalk::write_shared(const WalkedOp& op, TensorId tensor, ShareId share) {
  const bool part = view_of(ir_, tensor) != nullptr;
  for_each_root(ir_, tensor, [&](TensorId root) {
    if (flow_.differentiated_.contains(root)) return check_update(op, root, share);
    ShareId& stored = shares_[ir_.storage_index(root)];
    stored = part ? flow_.merge(stored, share) : share;
  });
}

void GradientWalk::check_update(const WalkedOp& op, TensorId storage, ShareId share) {
  if (!GradientFlow::is_known(share)) return;
  const auto declared = flow_.differentiated_.declared(storage);
  if (!declared) return;
  const auto is_gradient = [&](TensorId t) {
    return t != kNone && storage_of(t) != storage && GradientFlow::is_known(read(t));
  };
  const auto it = std::ranges::find_if(op.inputs, is_gradient);
  const TensorId gradient = it == op.inputs.end() ? TensorId(kNone) : *it;
  if (const auto factor = flow_.factor(share, *declared)) {
    flow_.updates_.push_back({op.id, storage, gradient, share, *factor});
  } else {
    flow_.find({.fault = GradientFault::kUpdate,
                .op = op.id,
                .tensor = storage,
                .first = gradient,
                .share = flow_.of(share)});
  }
}

void GradientWalk::step(const WalkedOp& op, std::span<const PartitionId> facts) {
  const ShareTraits& traits = traits_of(*op.def);
  if (traits.kind == ShareTraits::Kind::kView) return;  // writes nothing
  if (!traits.remote) return step(op, op.inputs, op.outputs, facts, traits);
  const Op& all = ir_.op(op.id);
  step(op, all_inputs(ir_, all), all_outputs(ir_, all), facts, traits);
}

void GradientWalk::step(const WalkedOp& op, Tensors inputs, Tensors outputs,
                        std::span<const PartitionId> facts, const ShareTraits& traits) {
  ShareId share = transfer(op, inputs, traits);
  if (flow_.trial_ && !outputs.empty() && outputs[0] == flow_.trial_->gradient &&
      GradientFlow::is_known(share)) {
    const auto sum = reduced(table_, flow_.of(share), flow_.trial_->group, false);
    share = sum ? flow_.intern(*sum) : GradientFlow::kUnknown;
  }
  for (std::size_t k = 0; k < outputs.size(); ++k) {
    const bool holds = share != GradientFlow::kPlain && is_floating(op, outputs[k]);
    write(op, outputs[k], holds ? share : GradientFlow::kPlain);
    write_fact(outputs[k], facts[k]);
  }
}

bool GradientWalk::is_floating(const WalkedOp& op, TensorId output) const {
  return (op.flat != nullptr && op.flat->floats) || is_float(ir_.tensor(output).type.dtype);
}

bool GradientWalk::updates(const WalkedOp& op) const {
  return std::ranges::any_of(
      op.outputs, [this](TensorId output) { return flow_.differentiated_.contains(storage_of(output)); });
}

const ShareTraits& GradientWalk::traits_of(const OpDef& def) {
  if (const ShareTraits* const known = flow_.traits_.find({&def})) return *known;
  flow_.traits_.put({&def}, ShareTraits(def));
  return *flow_.traits_.find({&def});
}

/// True if an input that influences the outputs is a gradient.
bool GradientWalk::takes_gradient(Tensors inputs, const ShareTraits& traits) const {
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i] != kNone && read(inputs[i]) != GradientFlow::kPlain && traits.influenced_by(i)) return true;
  }
  return false;
}

ShareId GradientWalk::transfer(const WalkedOp& op, Tensors inputs, const ShareTraits& traits) {
  if (!takes_gradient(inputs, traits)) return GradientFlow::kPlain;
  if (traits.kind == ShareTraits::Kind::kLocal) return transfer_local(op, inputs, traits);
  if (traits.kind == ShareTraits::Kind::kExchange) return after_exchange(ir_.op(op.id), inputs[0]);
  return transfer_collective(op, inputs[0]);
}

/// Key of a collective but for the share that it takes.
CollectiveStep GradientWalk::key_of(const WalkedOp& op) const {
  CollectiveStep key{
      .def = op.def, .groups = op.groups, .exec = context_.exec, .gradients = made_ != nullptr ? 1U : 0U};
  const bool reduces = op.def->replicas.collective == Collective::kReduce;
  if (op.flat != nullptr && op.flat->groups != kNone) {
    if (reduces) key.how = static_cast<std::uint32_t>(op.flat->reduction) + 1;
    return key;
  }
  const Op& all = ir_.op(op.id);
  const auto* const group = std::get_if<ReplicaGrouping>(&all.attribute(kGroup.name));
  if (group != nullptr) key.groups = group->identity();
  if (reduces) key.how = static_cast<std::uint32_t>(all.get(kReduction)) + 1;
  return key;
}

ShareId GradientWalk::transfer_collective(const WalkedOp& op, TensorId input) {
  CollectiveStep key = key_of(op);
  key.share = read(input).value;
  if (const GradientFlow::Step* const known = flow_.collective_steps_.find(key)) {
    if (known->is_repeated) note_repeated_sum(op, input);
    return known->share;
  }
  is_repeated_sum_ = false;
  const ShareId share = after_collective(ir_.op(op.id), input);
  // An unknown share may come with a finding of this op.
  if (GradientFlow::is_known(share)) flow_.collective_steps_.put(key, {share, is_repeated_sum_});
  return share;
}

ShareId GradientWalk::transfer_local(const WalkedOp& op, Tensors inputs, const ShareTraits& traits) {
  using Kind = LocalStep::Kind;
  ShareId sum;
  bool all_known = traits.is_meet || made_ == nullptr;
  PartitionId values = table_.top();
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i] == kNone || !traits.influenced_by(i)) continue;
    const ShareId share = read(inputs[i]);
    if (share == GradientFlow::kPlain) {
      values = table_.meet(values, fact(inputs[i]));
    } else if (sum == GradientFlow::kPlain) {
      sum = share;
    } else {
      const ShareId* const both = flow_.local_steps_.find({.share = sum.value, .with = share.value});
      all_known = all_known && both != nullptr;
      if (both != nullptr) sum = *both;
    }
  }
  if (!all_known || !GradientFlow::is_known(sum)) return after_local(ir_.op(op.id), inputs, values);
  LocalStep key{.share = sum.value, .with = values.value, .exec = context_.exec, .kind = Kind::kInGradients};
  if (made_ == nullptr) key.kind = traits.linear || updates(op) ? Kind::kLinear : Kind::kOther;
  if (const ShareId* const known = flow_.local_steps_.find(key)) return *known;
  const ShareId after = after_local(ir_.op(op.id), inputs, values);
  if (GradientFlow::is_known(after)) flow_.local_steps_.put(key, after);
  return after;
}

ShareId GradientWalk::unknown(const Op& op, GradientFault fault, TensorId input, const GradientShare& share) {
  if (!share.scaled)
    flow_.find({.fault = fault, .op = op.id, .tensor = forward_of(input), .first = input, .share = share});
  return GradientFlow::kUnknown;
}

ShareId GradientWalk::after_collective(const Op& op, TensorId input) {
  if (!GradientFlow::is_known(read(input))) return read(input);
  const GradientShare share = flow_.of(read(input));
  const ReplicaGrouping group = group_of(ir_, op);
  if (op.def->replicas.expects_whole_gradient) {
    auto whole = of_summed(table_, share, group);
    if (!whole) return unknown(op, GradientFault::kNotWhole, input, share);
    whole->equal = rule(op, {whole->equal});
    return flow_.intern(*whole);
  }
  std::optional<GradientShare> after;
  if (op.def->replicas.collective == Collective::kReduce) {
    const CollectiveOp how = op.get(kReduction);
    if (how != CollectiveOp::kAdd && how != CollectiveOp::kMean) return GradientFlow::kUnknown;
    after = reduced(table_, share, group, how == CollectiveOp::kMean);
    const PartitionId both = table_.join(share.summed, group.partition(table_));
    if (made_ != nullptr && group.group_size() > 1 && how == CollectiveOp::kAdd &&
        factor_over(table_, share, both)) {
      is_repeated_sum_ = true;
      note_repeated_sum(op, input);
    }
  } else if (op.def->replicas.collective == Collective::kGather) {
    const bool summed = table_.join(share.summed, group.partition(table_)) == share.summed;
    after = summed ? std::optional(share) : reduced(table_, share, group, false);
  } else {
    // A broadcast of what all members hold.
    const PartitionId both = table_.join(share.summed, group.partition(table_));
    const auto factor = factor_over(table_, share, both);
    if (!factor) return GradientFlow::kUnknown;
    after = share;
    after->summed = both;
    after->factor = *factor;
  }
  return after ? flow_.intern(*after) : unknown(op, GradientFault::kGroups, input, share);
}

void GradientWalk::note_repeated_sum(const WalkedOp& op, TensorId input) {
  flow_.repeated_sums_.insert_or_assign(op.id, GradientFinding{.fault = GradientFault::kTwice,
                                                               .op = op.id,
                                                               .tensor = forward_of(op.outputs[0]),
                                                               .first = input,
                                                               .share = flow_.of(read(input))});
}

/// An op of a gradient graph that moves gradients back to where the forward op took the values from.
ShareId GradientWalk::after_exchange(const Op& op, TensorId input) {
  if (!GradientFlow::is_known(read(input))) return read(input);
  GradientShare share = flow_.of(read(input));
  const auto factor = factor_over(table_, share, table_.bottom());
  if (made_ == nullptr || !factor) return GradientFlow::kUnknown;
  share.summed = table_.bottom();
  share.factor = *factor;
  share.equal = rule(op, {share.equal});
  return flow_.intern(share);
}

/// `values`: the meet of the facts of inputs that matter and are no gradients.
ShareId GradientWalk::after_local(const Op& op, Tensors inputs, PartitionId values) {
  std::optional<GradientShare> share = sum_of_gradients(op, inputs);
  if (!share) return GradientFlow::kUnknown;
  if (made_ == nullptr) {
    share->equal = table_.meet(share->equal, values);
    share->scaled = share->scaled || !(traits_of(*op.def).linear || updates(op));
    return flow_.intern(*share);
  }
  facts_.clear();
  for (const TensorId input : inputs) {
    const ShareId here = input == kNone ? GradientFlow::kPlain : read(input);
    const PartitionId plain = input == kNone ? table_.top() : fact(input);
    facts_.push_back(GradientFlow::is_known(here) ? flow_.of(here).equal : plain);
  }
  const auto after = after_op(table_, *share, values, rule(op, facts_));
  if (after) return flow_.intern(*after);
  const auto is_share = [this](TensorId t) { return t != kNone && GradientFlow::is_known(read(t)); };
  return unknown(op, GradientFault::kGroups, *std::ranges::find_if(inputs, is_share), *share);
}

/// Sum of the gradients; nullopt if one is unknown, or they do not fit, which is a finding.
std::optional<GradientShare> GradientWalk::sum_of_gradients(const Op& op, Tensors inputs) {
  std::optional<GradientShare> sum;
  TensorId first = kNone;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const ShareId here =
        inputs[i] == kNone || !op.def->influences(i) ? GradientFlow::kPlain : read(inputs[i]);
    if (here == GradientFlow::kPlain) continue;
    if (here == GradientFlow::kUnknown) return std::nullopt;
    const GradientShare share = flow_.of(here);
    if (!sum) {
      sum = share;
      first = inputs[i];
      continue;
    }
    const auto both = flow_.sum(*sum, share);
    if (!both && (made_ != nullptr || traits_of(*op.def).linear) && !sum->scaled && !share.scaled) {
      const TensorId forward = op.outputs.empty() ? kNone : forward_of(op.outputs[0]);
      flow_.find({.fault = GradientFault::kFork,
                  .op = op.id,
                  .tensor = forward,
                  .first = first,
                  .second = inputs[i],
                  .share = *sum,
                  .other = share});
    }
    if (!both) return std::nullopt;
    flow_.local_steps_.put({.share = flow_.intern(*sum).value, .with = here.value}, flow_.intern(*both));
    sum = both;
  }
  return sum ? sum : std::optional<GradientShare>();
}

/// The fact of output 0 from facts of the inputs.
PartitionId GradientWalk::rule(const Op& op, const std::vector<PartitionId>& inputs) const {
  if (op.def->memory.view != nullptr || op.outputs.empty()) return inputs[0];
  if (!op.def->has_rule()) return table_.bottom();
  const RuleContext context{table_, ir_, op, inputs, context_.exec};
  return table_.meet(op.def->replicas.partition(context, 0), context_.exec);
}

/// The forward tensor that a tensor of this graph is the gradient of; kNone if autodiff did not make it.
TensorId GradientWalk::forward_of(TensorId gradient) const {
  if (made_ == nullptr) return kNone;
  const auto it = made_->of.find(gradient);
  return it == made_->of.end() ? TensorId(kNone) : it->second;
}

}  // namespace popsr
