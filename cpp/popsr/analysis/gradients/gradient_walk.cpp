#include "popsr/analysis/gradients/gradient_walk.h"

#include <algorithm>

#include "popsr/base/error.h"
#include "popsr/effects/memory.h"

namespace popsr {
namespace {

using ShareId = GradientWalk::ShareId;

/// True if the outputs are sums of inputs, in some order and shape.
bool is_linear(const Op& op) {
  const KernelAspect& kernel = op.def->kernel;
  const bool computes =
      kernel.elementwise || kernel.flops != nullptr || op.def->numerics.rounding != Rounding::kNone;
  return op.def->numerics.linear || op.def->memory.same_bytes || !computes;
}

std::size_t tensors_of(const Ir& ir, GraphId graph) { return ir.graph(graph).tensors.size(); }

}  // namespace

GradientWalk::GradientWalk(GradientFlow& flow, ContextId context, const std::vector<ShareId>& inputs)
    : flow_(flow),
      ir_(flow.ir_),
      table_(flow.table_),
      context_(flow.facts().context(context)),
      id_(context),
      graph_(ir_.graph(context_.graph)),
      made_(ir_.gradient_graph(context_.graph)),
      memory_(flow.facts().entry_memory(context_)),
      shares_(tensors_of(ir_, context_.graph)) {
  const std::vector<TensorId>& entry = flow.facts().entry_tensors(graph_.id);
  for (std::size_t i = 0; i < entry.size(); ++i) shares_[ir_.storage_index(entry[i])] = inputs[i];
}

GradientFlow::Result GradientWalk::run() {
  for (const OpId id : graph_.ops) step_any(ir_.op(id));
  GradientFlow::Result result;
  for (const TensorId output : graph_.outputs) result.outputs.push_back(read(output));
  for (const TensorId input : flow_.facts().entry_tensors(graph_.id)) result.inputs.push_back(read(input));
  result.memory = std::move(shares_);
  return result;
}

ShareId GradientWalk::share_after(TensorId tensor, std::uint32_t end) {
  for (std::uint32_t i = 0; i < end; ++i) step_any(ir_.op(graph_.ops[i]));
  return read(tensor);
}

void GradientWalk::step_any(const Op& op) {
  if (op.def->program.control != Control::kNone) {
    step_graphs(op);
  } else if (op.schedule.parts.empty()) {
    step(op);
  } else {
    for (const OpId part : op.schedule.parts) step(ir_.op(part));
  }
}

ShareId GradientWalk::read(TensorId tensor) const {
  if (!graph_.has_views && ir_.storage_index(tensor) != kNone) return shares_[ir_.storage_index(tensor)];
  if (ir_.storage_index(tensor) == kNone) {
    const auto it = flow_.remote_.find(tensor);
    return it == flow_.remote_.end() ? GradientFlow::kPlain : it->second;
  }
  ShareId share;
  for_each_root(ir_, tensor,
                [&](TensorId root) { share = flow_.merge(share, shares_[ir_.storage_index(root)]); });
  return share;
}

PartitionId GradientWalk::fact(TensorId tensor) const {
  const std::uint32_t slot = ir_.storage_index(tensor);
  return slot == kNone ? table_.top() : memory_.read(tensor, slot);
}

void GradientWalk::write(const Op& op, TensorId tensor, ShareId share) {
  if (ir_.storage_index(tensor) == kNone) {
    if (flow_.differentiated_.contains(tensor)) return check_update(op, tensor, share);
    ShareId& entry = flow_.remote_[tensor];
    entry = flow_.merge(entry, share);
    return;
  }
  if (!graph_.has_views) {
    const TensorId storage = ir_.tensor(tensor).memory.storage;
    if (flow_.differentiated_.contains(storage)) return check_update(op, storage, share);
    shares_[ir_.storage_index(tensor)] = share;
    return;
  }
  const bool part = view_of(ir_, tensor) != nullptr;
  for_each_root(ir_, tensor, [&](TensorId root) {
    if (flow_.differentiated_.contains(root)) return check_update(op, root, share);
    ShareId& held = shares_[ir_.storage_index(root)];
    held = part ? flow_.merge(held, share) : share;
  });
}

void GradientWalk::check_update(const Op& op, TensorId storage, ShareId share) {
  const auto declared = flow_.differentiated_.declared(storage);
  if (!GradientFlow::is_known(share) || !declared) return;
  const GradientShare held = flow_.of(share);
  const auto is_gradient = [&](TensorId t) {
    return t != kNone && ir_.tensor(t).memory.storage != storage && GradientFlow::is_known(read(t));
  };
  const auto it = std::ranges::find_if(op.inputs, is_gradient);
  const TensorId gradient = it == op.inputs.end() ? TensorId(kNone) : *it;
  if (const auto factor = factor_over(table_, held, *declared)) {
    flow_.updates_.insert_or_assign({op.id, storage},
                                    GradientFlow::Update{op.id, storage, gradient, *factor, held});
  } else {
    flow_.find(
        {.fault = GradientFault::kUpdate, .op = op.id, .tensor = storage, .first = gradient, .share = held});
  }
}

void GradientWalk::step(const Op& op) {
  if (op.def->memory.view != nullptr) return;  // writes nothing
  if (op.def->program.remote == Remote::kNone) return step(op, op.inputs, op.outputs);
  step(op, all_inputs(ir_, op), all_outputs(ir_, op));
}

void GradientWalk::step(const Op& op, const std::vector<TensorId>& inputs,
                        const std::vector<TensorId>& outputs) {
  bool some = false;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    some = some || (inputs[i] != kNone && op.def->influences(i) && read(inputs[i]) != GradientFlow::kPlain);
  }
  const ShareId share = some ? transfer(op, inputs) : GradientFlow::kPlain;
  const FactView facts = facts_of(ir_, context_, op);
  for (std::size_t k = 0; k < outputs.size(); ++k) {
    const bool floats = is_float(ir_.tensor(outputs[k]).type.dtype);
    write(op, outputs[k], floats ? share : GradientFlow::kPlain);
    if (ir_.storage_index(outputs[k]) != kNone) memory_.write(outputs[k], facts.outputs[k]);
  }
}

/// nullopt where more than that counts.
std::optional<StepKey> GradientWalk::key_of(const Op& op, const std::vector<TensorId>& inputs) const {
  const ReplicaAspect& replicas = op.def->replicas;
  StepKey key{.def = op.def, .gradients = made_ != nullptr, .exec = context_.exec};
  if (replicas.collective != Collective::kNone || replicas.takes_whole_gradient) {
    const auto* const group = std::get_if<ReplicaGrouping>(&op.attribute(kGroup.name));
    if (group != nullptr) key.groups = group->identity();
    if (replicas.collective == Collective::kReduce)
      key.how = static_cast<std::uint32_t>(op.get(kReduction)) + 1;
    key.inputs[0] = read(inputs[0]).value;
    return key;
  }
  if (made_ == nullptr || replicas.peers != Peers::kNone || replicas.partition != meet_of_inputs ||
      inputs.size() > StepKey::kMaxInputs) {
    return std::nullopt;
  }
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i] == kNone) continue;
    const ShareId share = read(inputs[i]);
    key.inputs[i] = share == GradientFlow::kPlain ? std::uint64_t{fact(inputs[i]).value} << 32 | 1U
                                                  : std::uint64_t{share.value} << 32 | 2U;
  }
  return key;
}

ShareId GradientWalk::transfer(const Op& op, const std::vector<TensorId>& inputs) {
  const auto key = key_of(op, inputs);
  if (!key) return transfer_anew(op, inputs);
  if (const auto it = flow_.steps_.find(*key); it != flow_.steps_.end()) {
    if (it->second.again) note_again(op, inputs[0]);
    return it->second.share;
  }
  again_ = false;
  const ShareId share = transfer_anew(op, inputs);
  // Where no share is known there may be a finding of this op.
  if (GradientFlow::is_known(share)) flow_.steps_.emplace(*key, GradientFlow::Step{share, again_});
  return share;
}

ShareId GradientWalk::transfer_anew(const Op& op, const std::vector<TensorId>& inputs) {
  const ReplicaAspect& replicas = op.def->replicas;
  if (replicas.collective != Collective::kNone || replicas.takes_whole_gradient)
    return after_collective(op, inputs[0]);
  if (replicas.peers != Peers::kNone) return after_exchange(op, inputs[0]);
  return after_local(op, inputs);
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
  if (op.def->replicas.takes_whole_gradient) {
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
      again_ = true;
      note_again(op, input);
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

void GradientWalk::note_again(const Op& op, TensorId input) {
  flow_.sums_again_.insert_or_assign(op.id, GradientFinding{.fault = GradientFault::kTwice,
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

ShareId GradientWalk::after_local(const Op& op, const std::vector<TensorId>& inputs) {
  std::optional<GradientShare> share = sum_of_gradients(op, inputs);
  if (!share) return GradientFlow::kUnknown;
  PartitionId values = table_.top();
  facts_.clear();
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const ShareId here = inputs[i] == kNone ? GradientFlow::kPlain : read(inputs[i]);
    const PartitionId plain = inputs[i] == kNone ? table_.top() : fact(inputs[i]);
    facts_.push_back(GradientFlow::is_known(here) ? flow_.of(here).equal : plain);
    if (here == GradientFlow::kPlain && op.def->influences(i)) values = table_.meet(values, plain);
  }
  if (made_ != nullptr) {
    const GradientShare before = *share;
    share = after_op(table_, *share, values, rule(op, facts_));
    if (!share) {
      const auto is_share = [this](TensorId t) { return t != kNone && GradientFlow::is_known(read(t)); };
      return unknown(op, GradientFault::kGroups, *std::ranges::find_if(inputs, is_share), before);
    }
  } else {
    const bool updates = std::ranges::any_of(op.outputs, [this](TensorId output) {
      return flow_.differentiated_.contains(ir_.tensor(output).memory.storage);
    });
    share->equal = table_.meet(share->equal, values);
    share->scaled = share->scaled || !(is_linear(op) || updates);
  }
  return flow_.intern(*share);
}

/// nullopt where one is unknown, or they do not fit, which is a finding.
std::optional<GradientShare> GradientWalk::sum_of_gradients(const Op& op,
                                                            const std::vector<TensorId>& inputs) {
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
    if (!both && (made_ != nullptr || is_linear(op)) && !sum->scaled && !share.scaled) {
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

void GradientWalk::write_facts(const Op& op, const FactView& facts) {
  for (std::size_t k = 0; k < op.outputs.size(); ++k) memory_.write(op.outputs[k], facts.outputs[k]);
  for (const auto& [storage, written] : facts.written) {
    if (ir_.storage_index(storage) != kNone) memory_.write(storage, written);
  }
  memory_.write(facts.pieces);
}

void GradientWalk::step_graphs(const Op& op) {
  const FactView facts = facts_of(ir_, context_, op);
  switch (op.def->program.control) {
    case Control::kCall:
      step_call(op, facts);
      break;
    case Control::kRepeat:
      step_repeat(op, facts);
      break;
    default:
      step_conditional(op, facts);
  }
  write_facts(op, facts);
}

/// The shares that a graph starts with. Forward values of gradient graphs, and differentiated memory, are
/// plain.
std::vector<ShareId> GradientWalk::arguments(const Op& op, const CalledGraph& called) {
  const std::vector<TensorId>& inputs = ir_.graph(called.graph).inputs;
  const GradientGraph* const made = ir_.gradient_graph(called.graph);
  std::vector<ShareId> shares;
  for (std::size_t i = 0; i < inputs.size() && called.first + i < called.end; ++i) {
    const TensorId argument = op.inputs[called.first + i];
    ShareId share = read(argument);
    if (flow_.differentiated_.contains(ir_.tensor(inputs[i]).memory.storage)) {
      check_update(op, inputs[i], share);
      share = {};
    }
    if (made != nullptr && made_ == nullptr && i < made->provided.size() && share == GradientFlow::kPlain) {
      share = starting(op, *made, i);
    } else if (made != nullptr && i >= made->provided.size() && i < made->num_inputs && !made->of.empty()) {
      share = {};
    }
    shares.push_back(share);
  }
  return shares;
}

/// A gradient counts as the one of the forward value, and so as equal where that is.
ShareId GradientWalk::starting(const Op& call, const GradientGraph& made, std::size_t provided) {
  const auto next = static_cast<std::uint32_t>(flow_.sources_.size());
  const auto [source, fresh] = flow_.source_of_call_.try_emplace(call.id, next);
  if (fresh) flow_.sources_.push_back(next);
  const PartitionId forward = flow_.facts().partition(made.provided[provided]);
  return flow_.intern(starting_share(forward, source->second));
}

/// Writes the shares of inputs that a graph modified; with `merges` it may not have run.
void GradientWalk::leave(const Op& op, const CalledGraph& called, const std::vector<ShareId>& inputs,
                         bool merges) {
  for (const std::uint32_t i : op.call.modified) {
    if (i < called.first || i >= called.end || i - called.first >= inputs.size()) continue;
    const ShareId left = inputs[i - called.first];
    write(op, op.inputs[i], merges ? flow_.merge(read(op.inputs[i]), left) : left);
  }
}

void GradientWalk::step_call(const Op& op, const FactView& facts) {
  const CalledGraph called = called_graphs(ir_, op).at(0);
  const GradientFlow::Result& result = flow_.walk(facts.callee, arguments(op, called), {id_, op.id});
  const GradientGraph* const made = ir_.gradient_graph(called.graph);
  for (std::size_t k = 0; k < op.outputs.size(); ++k) {
    ShareId share = result.outputs[k];
    if (made != nullptr && k < made->required.size() && GradientFlow::is_known(share)) {
      GradientShare held = flow_.of(share);
      held.whole = flow_.facts().partition(made->required[k]);
      share = flow_.intern(held);
    }
    write(op, op.outputs[k], share);
  }
  leave(op, called, result.inputs, false);
}

void GradientWalk::step_repeat(const Op& op, const FactView& facts) {
  const CalledGraph called = called_graphs(ir_, op).at(0);
  std::vector<ShareId> in = arguments(op, called);
  const std::size_t carried = op.outputs.size();
  if (facts.callee == kNone) {
    for (std::size_t k = 0; k < carried; ++k) write(op, op.outputs[k], in[k]);
    return;
  }
  const std::vector<TensorId>& inputs = ir_.graph(called.graph).inputs;
  const GradientFlow::Result* result = nullptr;
  for (bool changed = true; changed;) {
    result = &flow_.walk(facts.callee, in, {id_, op.id});
    changed = false;
    const auto next = [&](std::size_t i, ShareId left) {
      if (flow_.differentiated_.contains(ir_.tensor(inputs[i]).memory.storage)) {
        check_update(op, inputs[i], left);
        return;
      }
      const ShareId merged = flow_.merge(in[i], left);
      changed |= merged != in[i];
      in[i] = merged;
    };
    for (std::size_t i = 0; i < carried; ++i) next(i, result->outputs[i]);
    for (const std::uint32_t i : op.call.modified) {
      if (i >= carried && i < in.size()) next(i, result->inputs[i]);
    }
  }
  for (std::size_t k = 0; k < carried; ++k) write(op, op.outputs[k], result->outputs[k]);
  leave(op, called, result->inputs, false);
}

void GradientWalk::step_conditional(const Op& op, const FactView& facts) {
  const std::vector<CalledGraph> branches = called_graphs(ir_, op);
  const GradientFlow::Result& taken = flow_.walk(facts.callee, arguments(op, branches[0]), {id_, op.id});
  const GradientFlow::Result& other = flow_.walk(facts.otherwise, arguments(op, branches[1]), {id_, op.id});
  for (std::size_t k = 0; k < op.outputs.size(); ++k) {
    write(op, op.outputs[k], flow_.merge(taken.outputs[k], other.outputs[k]));
  }
  leave(op, branches[0], taken.inputs, true);
  leave(op, branches[1], other.inputs, true);
}

}  // namespace popsr
