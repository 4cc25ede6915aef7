#include "popsr/effects/write_order.h"

#include <algorithm>
#include <span>

#include "popsr/effects/memory.h"
#include "popsr/effects/reachability.h"
#include "popsr/ir/op_def.h"

namespace popsr {
namespace {

bool writes_input(const Op& op, std::size_t index) {
  return op.def->writes(index) ||
         std::ranges::find(op.call.modified, static_cast<std::uint32_t>(index)) != op.call.modified.end();
}

/// Calls visit(op) for the ops of a graph, of merged ones for the parts.
template <class Visit>
void for_each_single(const Ir& ir, const Graph& graph, const Visit& visit) {
  for (const OpId id : graph.ops) {
    const Op& op = ir.op(id);
    if (op.schedule.parts.empty()) {
      visit(op);
    } else {
      for (const OpId part : op.schedule.parts) visit(ir.op(part));
    }
  }
}

/// The memory of a graph that ops modify, and its uses in schedule order. Making a view does not count.
class ModifiedMemory {
 public:
  ModifiedMemory(const Ir& ir, const Graph& graph) : ir_(ir), graph_(graph) {
    find_roots();
    if (roots_.empty()) return;
    uses_.resize(roots_.size());
    for_each_single(ir, graph, [this](const Op& op) {
      if (op.def->memory.view == nullptr) add_uses(op);
    });
  }

  std::size_t size() const { return roots_.size(); }
  TensorId root(std::size_t i) const { return roots_[i]; }
  std::span<const Use> uses(std::size_t i) const { return uses_[i]; }

 private:
  void find_roots() {
    for_each_single(ir_, graph_, [this](const Op& op) {
      if (op.def->memory.effects.empty() && op.call.modified.empty()) return;
      for (std::size_t i = 0; i < op.inputs.size(); ++i) {
        if (op.inputs[i] == kNone || !writes_input(op, i)) continue;
        for_each_root(ir_, op.inputs[i], [this](TensorId root) { roots_.push_back(root); });
      }
    });
    std::ranges::sort(roots_);
    roots_.erase(std::ranges::unique(roots_).begin(), roots_.end());
    number_.assign(roots_.empty() ? 0 : graph_.tensors.size(), kNone);
    for (std::uint32_t i = 0; i < roots_.size(); ++i) number_[ir_.storage_index(roots_[i])] = i;
  }

  void add_uses(const Op& op) {
    const bool writes = !op.def->memory.effects.empty() || !op.call.modified.empty();
    for (std::size_t i = 0; i < op.inputs.size(); ++i) {
      const TensorId input = op.inputs[i];
      if (input == kNone) continue;
      if (!graph_.has_views) {
        add_use(op, input, number_[ir_.storage_index(input)], writes && writes_input(op, i));
      } else {
        for_each_root(ir_, input, [&](TensorId root) {
          add_use(op, input, number_[ir_.storage_index(root)], writes && writes_input(op, i));
        });
      }
    }
  }

  void add_use(const Op& op, TensorId tensor, std::uint32_t number, bool writes) {
    if (number == kNone) return;
    std::vector<Use>& uses = uses_[number];
    const Use use{op.id, tensor, op.schedule.position, writes};
    const bool known = !uses.empty() && uses.back().op == op.id;
    const bool apart = graph_.has_views && ir_.tensor(roots_[number]).memory.viewed == Viewed::kPartly;
    if (apart || !known) {
      uses.push_back(use);
    } else if (writes) {
      uses.back() = use;
    }
  }

  const Ir& ir_;
  const Graph& graph_;
  std::vector<TensorId> roots_;        ///< Ascending.
  std::vector<std::uint32_t> number_;  ///< Of a root among them, by Tensor::index.
  std::vector<std::vector<Use>> uses_;
};

/// Collects the pairs of uses that runs of neighbours do not order.
class PairCollector {
 public:
  PairCollector(const Ir& ir, const Graph& graph) : ir_(ir), runs_(ir, graph) {}

  void add(TensorId root, std::span<const Use> uses) {
    root_ = root;
    if (ir_.tensor(root).memory.viewed == Viewed::kPartly) {
      add_parts(uses);
    } else {
      add_whole(uses);
    }
  }
  std::vector<UnorderedPair> pairs;
  std::vector<OrderQuestion> questions;  ///< Parallel to pairs.

 private:
  /// Each use must be ordered against all earlier ones that share an element with it, if one of the two
  /// writes.
  void add_parts(std::span<const Use> uses) {
    std::vector<const Use*> open;  // no later writer covers them
    for (const Use& use : uses) {
      for (const Use* const before : open) {
        if (before->op == use.op || !(before->writes || use.writes)) continue;
        if (overlaps(ir_, before->tensor, use.tensor)) ask(*before, use, use.writes ? use : *before);
      }
      if (use.writes) {
        std::erase_if(open, [&](const Use* before) {
          return before->op != use.op && contains(ir_, use.tensor, before->tensor);
        });
      }
      open.push_back(&use);
    }
  }

  /// Each writer must be ordered against the writer before it and all uses between the two.
  void add_whole(std::span<const Use> uses) {
    const Use* writer = nullptr;
    std::size_t pending = 0;  // the first use that the next writer must follow
    for (std::size_t i = 0; i < uses.size(); ++i) {
      if (!uses[i].writes) {
        if (writer != nullptr) ask(*writer, uses[i], *writer);
        continue;
      }
      for (; pending < i; ++pending) ask(uses[pending], uses[i], uses[i]);
      writer = &uses[i];
    }
  }

  void ask(const Use& first, const Use& second, const Use& writer) {
    if (runs_.orders(first.position, second.position)) return;
    questions.push_back({first.position, second.position});
    pairs.push_back({root_, writer, &writer == &first ? second : first});
  }

  const Ir& ir_;
  NeighbourRuns runs_;
  TensorId root_ = kNone;
};

}  // namespace

std::vector<UnorderedPair> unordered_pairs(const Ir& ir, const Graph& graph) {
  const ModifiedMemory modified(ir, graph);
  if (modified.size() == 0) return {};
  PairCollector collector(ir, graph);
  for (std::size_t i = 0; i < modified.size(); ++i) collector.add(modified.root(i), modified.uses(i));
  const std::vector<bool> ordered = must_run_before(ir, graph, collector.questions);
  std::vector<UnorderedPair> result;
  for (std::size_t i = 0; i < ordered.size(); ++i) {
    if (!ordered[i]) result.push_back(collector.pairs[i]);
  }
  return result;
}

}  // namespace popsr
