// Ops that run graphs, for GradientWalk: shares go into the graphs and come back.
#include <algorithm>

#include "popsr/analysis/gradients/gradient_walk.h"

namespace popsr {
namespace {

using ShareId = GradientWalk::ShareId;

/// PartitionAnalysis::partition of tensors of one graph.
class LastFacts {
 public:
  LastFacts(const PartitionAnalysis& facts, GraphId graph) : facts_(facts), graph_(graph) {
    if (graph != kMainGraph) contexts_ = facts.contexts(graph);
  }
  PartitionId operator()(TensorId tensor) const {
    if (graph_ == kMainGraph) return facts_.partition(tensor);  // whose state may be elsewhere
    PartitionTable& table = facts_.ir().partitions();
    PartitionId met = table.top();
    for (const ContextId each : contexts_)
      met = table.meet(met, facts_.context(each).end.memory->read(tensor));
    return met;
  }

 private:
  const PartitionAnalysis& facts_;
  GraphId graph_;
  std::span<const ContextId> contexts_;
};

}  // namespace

void GradientWalk::write_facts(const Op& op, const FactView& facts) {
  for (std::size_t k = 0; k < op.outputs.size(); ++k) write_fact(op.outputs[k], facts.outputs[k]);
  for (const auto& [storage, written] : facts.written) write_fact(storage, written);
  if (memory_) memory_->write(facts.pieces);  // whose meets are the facts above
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
  shares.reserve(inputs.size());
  for (std::size_t i = 0; i < inputs.size() && called.first + i < called.end; ++i) {
    const TensorId argument = op.inputs[called.first + i];
    ShareId share = read(argument);
    if (flow_.differentiated_.contains(inputs[i])) {
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
void GradientWalk::write_modified(const Op& op, const CalledGraph& called, const std::vector<ShareId>& inputs,
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
  write_results(op, result.outputs, ir_.gradient_graph(called.graph));
  write_modified(op, called, result.inputs, false);
}

/// Writes the results of a call; gradients hold sums for the forward values that they are the gradients of.
void GradientWalk::write_results(const Op& op, const std::vector<ShareId>& shares,
                                 const GradientGraph* made) {
  if (made == nullptr) {
    for (std::size_t k = 0; k < op.outputs.size(); ++k) write(op, op.outputs[k], shares[k]);
    return;
  }
  const LastFacts forward(flow_.facts(), made->forward);
  ShareId stored, last;  // neighbours are often the same
  PartitionId whole;
  for (std::size_t k = 0; k < op.outputs.size(); ++k) {
    if (k >= made->required.size() || !GradientFlow::is_known(shares[k])) {
      write(op, op.outputs[k], shares[k]);
      continue;
    }
    const PartitionId fact = forward(made->required[k]);
    if (last != shares[k] || whole != fact) {
      last = shares[k];
      whole = fact;
      GradientShare share = flow_.of(last);
      share.whole = whole;
      stored = flow_.intern(share);
    }
    write(op, op.outputs[k], stored);
  }
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
      if (flow_.differentiated_.contains(inputs[i])) {
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
  write_modified(op, called, result->inputs, false);
}

void GradientWalk::step_conditional(const Op& op, const FactView& facts) {
  const std::vector<CalledGraph> branches = called_graphs(ir_, op);
  const GradientFlow::Result& taken = flow_.walk(facts.callee, arguments(op, branches[0]), {id_, op.id});
  const GradientFlow::Result& other = flow_.walk(facts.otherwise, arguments(op, branches[1]), {id_, op.id});
  for (std::size_t k = 0; k < op.outputs.size(); ++k) {
    write(op, op.outputs[k], flow_.merge(taken.outputs[k], other.outputs[k]));
  }
  write_modified(op, branches[0], taken.inputs, true);
  write_modified(op, branches[1], other.inputs, true);
}

}  // namespace popsr
