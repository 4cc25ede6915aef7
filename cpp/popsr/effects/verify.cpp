#include "popsr/effects/verify.h"

#include <algorithm>
#include <functional>
#include <map>
#include <unordered_set>

#include "popsr/base/error.h"
#include "popsr/effects/memory.h"
#include "popsr/effects/written_inputs.h"
#include "popsr/ir/calls/called_graphs.h"
#include "popsr/ir/op_def.h"

namespace popsr {
namespace {

/// Order between the ops of one graph, given by their positions: data dependencies and in_sequence
/// constraints. A question costs the ops between the two at most, and nothing when both lie on one chain of
/// dependencies.
class Order {
 public:
  Order(const Ir& ir, const Graph& graph) : ir_(ir), graph_(graph) {
    const std::size_t size = graph.ops.size();
    chain_.assign(size, kNone);
    ancestor_.assign(size, 0);
    descendant_.assign(size, 0);
    std::vector<std::uint32_t> tails;
    for (std::uint32_t op = 0; op < size; ++op) {
      std::uint32_t& chain = chain_[op];
      for (const std::uint32_t before : predecessors(op)) {
        const std::uint32_t candidate = chain_[before];
        if (chain == kNone && tails[candidate] == before) chain = candidate;
      }
      if (chain == kNone) {
        chain = static_cast<std::uint32_t>(tails.size());
        tails.push_back(op);
      }
      tails[chain] = op;
    }
  }

  /// Must `op` run before the later `writer`? Asked of one writer and allocation for ascending ops.
  bool before_writer(OpId op_id, OpId writer_id) {
    const std::uint32_t op = ir_.op(op_id).schedule.position, writer = ir_.op(writer_id).schedule.position;
    if (chain_[op] == chain_[writer]) return true;
    if (writer_ != writer || op < floor_) {
      writer_ = writer;
      floor_ = op;
      ++stamp_;
      std::vector<std::uint32_t> stack{writer};
      while (!stack.empty()) {
        const std::uint32_t at = stack.back();
        stack.pop_back();
        for (const std::uint32_t before : predecessors(at)) {
          if (before < op || ancestor_[before] == stamp_) continue;
          ancestor_[before] = stamp_;
          stack.push_back(before);
        }
      }
    }
    return ancestor_[op] == stamp_;
  }

  /// Must `op` run after the earlier `writer`? Asked of one writer and allocation for ascending ops.
  bool after_writer(OpId op_id, OpId writer_id) {
    const std::uint32_t op = ir_.op(op_id).schedule.position, writer = ir_.op(writer_id).schedule.position;
    if (chain_[op] == chain_[writer]) return true;
    if (source_ != writer) {
      source_ = writer;
      descendant_[writer] = ++source_stamp_;
      reached_ = writer;
    }
    while (reached_ < op) {
      ++reached_;
      const auto follows = [this](std::uint32_t before) { return descendant_[before] == source_stamp_; };
      if (std::ranges::any_of(predecessors(reached_), follows)) descendant_[reached_] = source_stamp_;
    }
    return descendant_[op] == source_stamp_;
  }

 private:
  std::vector<std::uint32_t> predecessors(std::uint32_t position) const {
    const Op& op = ir_.op(graph_.ops[position]);
    std::vector<std::uint32_t> before;
    const auto add = [&](OpId id) {
      if (ir_.op(id).schedule.position != position) before.push_back(ir_.op(id).schedule.position);
    };
    for (const OpId id : op.schedule.after) add(id);
    for (const TensorId input : op.inputs) {
      if (input != kNone && ir_.tensor(input).uses.producer != kNone) add(ir_.tensor(input).uses.producer);
    }
    return before;
  }

  const Ir& ir_;
  const Graph& graph_;
  std::vector<std::uint32_t> chain_, ancestor_, descendant_;  ///< By position.
  std::uint32_t stamp_ = 0, source_stamp_ = 0;
  std::uint32_t writer_ = kNone, floor_ = 0;  ///< Ancestors of the writer are known from floor_ on.
  std::uint32_t source_ = kNone, reached_ = 0;
};

/// Effect of one op on an allocation.
struct Use {
  OpId op = kNone;
  TensorId tensor = kNone;
  bool writes = false;
};

bool writes_input(const Op& op, std::size_t index) {
  return op.def->writes(index) ||
         std::ranges::find(op.call.modified, static_cast<std::uint32_t>(index)) != op.call.modified.end();
}

/// Uses of each root that is modified at all, in schedule order. Making a view does not count.
std::map<TensorId, std::vector<Use>> uses_of_modified(const Ir& ir, const Graph& graph) {
  std::map<TensorId, std::vector<Use>> uses;
  std::unordered_set<TensorId> modified;
  for (const OpId id : single_ops(ir, graph.id)) {
    const Op& op = ir.op(id);
    for (std::size_t i = 0; i < op.inputs.size(); ++i) {
      if (op.inputs[i] == kNone || !writes_input(op, i)) continue;
      for_each_root(ir, op.inputs[i], [&modified](TensorId root) { modified.insert(root); });
    }
  }
  if (modified.empty()) return uses;
  for (const OpId id : single_ops(ir, graph.id)) {
    const Op& op = ir.op(id);
    if (op.def->memory.view) continue;
    for (std::size_t i = 0; i < op.inputs.size(); ++i) {
      if (op.inputs[i] == kNone) continue;
      for_each_root(ir, op.inputs[i], [&](TensorId root) {
        if (!modified.contains(root)) return;
        std::vector<Use>& of_root = uses[root];
        const bool apart = ir.tensor(root).memory.viewed == Viewed::kPartly;
        if (apart || of_root.empty() || of_root.back().op != id) of_root.push_back({id, op.inputs[i], false});
        if (writes_input(op, i)) of_root.back() = {id, op.inputs[i], true};
      });
    }
  }
  return uses;
}

/// Calls visit(writer, other) for each use that is not ordered against a write of the same memory.
using Visit = std::function<void(const Use& writer, const Use& other)>;

/// Uses of a root that is seen in parts: each must be ordered against all earlier ones that share an element
/// with it, if one of the two writes.
void visit_parts(const Ir& ir, const std::vector<Use>& uses, Order& order, const Visit& visit) {
  std::vector<const Use*> open;  // no later writer covers them
  for (const Use& use : uses) {
    for (const Use* const before : open) {
      if (before->op == use.op || !(before->writes || use.writes)) continue;
      if (!overlaps(ir, before->tensor, use.tensor) || order.before_writer(before->op, use.op)) continue;
      visit(use.writes ? use : *before, use.writes ? *before : use);
    }
    if (use.writes) {
      std::erase_if(open, [&](const Use* before) {
        return before->op != use.op && contains(ir, use.tensor, before->tensor);
      });
    }
    open.push_back(&use);
  }
}

/// Each writer must be ordered against the writer before it and all uses between the two.
void visit_whole(const std::vector<Use>& uses, Order& order, const Visit& visit) {
  const Use* writer = nullptr;
  std::size_t pending = 0;  // the first use that the next writer must follow
  for (std::size_t i = 0; i < uses.size(); ++i) {
    if (!uses[i].writes) {
      if (writer && !order.after_writer(uses[i].op, writer->op)) visit(*writer, uses[i]);
      continue;
    }
    for (; pending < i; ++pending) {
      if (!order.before_writer(uses[pending].op, uses[i].op)) visit(uses[i], uses[pending]);
    }
    writer = &uses[i];
  }
}

/// Calls visit(root, writer, other) for the pairs of a graph's uses that nothing orders.
template <class VisitRoot>
void visit_unordered(const Ir& ir, const Graph& graph, const VisitRoot& visit) {
  const std::map<TensorId, std::vector<Use>> all = uses_of_modified(ir, graph);
  if (all.empty()) return;
  Order order(ir, graph);
  for (const auto& [root, uses] : all) {
    const Visit of_root = [&visit, root = root](const Use& writer, const Use& other) {
      visit(root, writer, other);
    };
    if (ir.tensor(root).memory.viewed == Viewed::kPartly) {
      visit_parts(ir, uses, order, of_root);
    } else {
      visit_whole(uses, order, of_root);
    }
  }
}

/// Memory that a called graph is given twice must not be modified through both inputs.
void check_aliases(const Ir& ir, const Op& op, const CalledGraph& called, WrittenInputs& written) {
  std::map<TensorId, std::vector<std::uint32_t>> modified;  // by root
  for (const std::uint32_t i : op.call.modified) {
    if (i < called.first || i >= called.end || !written.by_call(op, i)) continue;
    for_each_root(ir, op.inputs[i], [&](TensorId root) {
      for (const std::uint32_t first : modified[root]) {
        if (!overlaps(ir, op.inputs[first], op.inputs[i])) continue;
        raise<GraphError>(
            "Inplacing ambiguity detected. {}: '{}' is passed twice and modified through both inputs ({}), "
            "got inputs {} and {}, expected one of them",
            op.def->name, ir.tensor(op.inputs[i]).name, ir.locations().to_string(op.origin.location), first,
            i);
      }
      modified[root].push_back(i);
    });
  }
}

/// Calls visit(graph) for the graphs that the main graph reaches, itself first.
template <class VisitGraph>
void for_each_reached(const Ir& ir, const VisitGraph& visit) {
  std::vector<GraphId> stack{kMainGraph};
  std::unordered_set<GraphId> seen{kMainGraph};
  while (!stack.empty()) {
    const Graph& graph = ir.graph(stack.back());
    stack.pop_back();
    visit(graph);
    for (const OpId id : graph.ops) {
      for (const CalledGraph& called : called_graphs(ir, ir.op(id))) {
        if (seen.insert(called.graph).second) stack.push_back(called.graph);
      }
    }
  }
}

}  // namespace

void verify(const Ir& ir) {
  WrittenInputs written(ir);
  for_each_reached(ir, [&](const Graph& graph) {
    for (const OpId id : graph.ops) {
      for (const CalledGraph& called : called_graphs(ir, ir.op(id))) {
        check_aliases(ir, ir.op(id), called, written);
      }
    }
  });
}

void verify_order(const Ir& ir) {
  for_each_reached(ir, [&ir](const Graph& graph) {
    visit_unordered(ir, graph, [&](TensorId, const Use& writer, const Use& other) {
      raise<GraphError>(
          "Inplacing ambiguity detected. {}: '{}' is modified here ({}) and {} by {} ({}) in {}, "
          "expected an order by data or popsr.in_sequence()",
          ir.op(writer.op).def->name, ir.tensor(writer.tensor).name,
          ir.locations().to_string(ir.op(writer.op).origin.location), other.writes ? "modified" : "read",
          ir.op(other.op).def->name, ir.locations().to_string(ir.op(other.op).origin.location),
          in_words(graph));
    });
  });
}

std::vector<UnorderedWrites> unordered_writes(const Ir& ir, GraphId graph) {
  std::map<TensorId, UnorderedWrites> by_root;
  visit_unordered(ir, ir.graph(graph), [&](TensorId root, const Use& writer, const Use& other) {
    UnorderedWrites& found =
        by_root.try_emplace(root, UnorderedWrites{writer.op, other.op, writer.tensor, other.writes, 0})
            .first->second;
    ++found.pairs;
  });
  std::vector<UnorderedWrites> result;
  for (const auto& [root, found] : by_root) result.push_back(found);
  return result;
}

}  // namespace popsr
