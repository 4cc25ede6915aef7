#include "popsr/ir/verify.h"

#include <algorithm>
#include <map>
#include <unordered_set>

#include "popsr/base/error.h"
#include "popsr/ir/op_def.h"

namespace popsr {
namespace {

/// Order between the ops of one graph: data dependencies and in_sequence constraints.
class Order {
 public:
  Order(const Ir& ir, const Graph& graph) : ir_(ir), graph_(graph.id) {}

  /// Must `later` run after `earlier`? Both of one graph, earlier created first.
  bool fixed(OpId earlier, OpId later) const {
    std::vector<OpId> stack{later};
    std::unordered_set<OpId> seen{later};
    while (!stack.empty()) {
      const OpId at = stack.back();
      stack.pop_back();
      for (const OpId before : predecessors(at)) {
        if (before == earlier) return true;
        if (before > earlier && seen.insert(before).second) stack.push_back(before);
      }
    }
    return false;
  }

 private:
  std::vector<OpId> predecessors(OpId id) const {
    const Op& op = ir_.op(id);
    std::vector<OpId> before = op.after;
    for (const TensorId input : op.inputs) {
      if (input != kNone && ir_.tensor(input).producer != kNone) before.push_back(ir_.tensor(input).producer);
    }
    return before;
  }

  const Ir& ir_;
  GraphId graph_;
};

struct Use {
  OpId op = kNone;
  TensorId tensor = kNone;
  bool writes = false;
};

bool writes_input(const Op& op, std::size_t index) {
  return op.def->writes(index) ||
         std::ranges::find(op.modified, static_cast<std::uint32_t>(index)) != op.modified.end();
}

/// Uses of each allocation that is modified at all, in schedule order.
std::map<TensorId, std::vector<Use>> uses_of_modified(const Ir& ir, const Graph& graph) {
  std::map<TensorId, std::vector<Use>> uses;
  std::unordered_set<TensorId> modified;
  for (const OpId id : graph.ops) {
    const Op& op = ir.op(id);
    for (std::size_t i = 0; i < op.inputs.size(); ++i) {
      if (op.inputs[i] != kNone && writes_input(op, i)) modified.insert(ir.tensor(op.inputs[i]).storage);
    }
  }
  if (modified.empty()) return uses;
  for (const OpId id : graph.ops) {
    const Op& op = ir.op(id);
    for (std::size_t i = 0; i < op.inputs.size(); ++i) {
      if (op.inputs[i] == kNone || !modified.contains(ir.tensor(op.inputs[i]).storage)) continue;
      uses[ir.tensor(op.inputs[i]).storage].push_back({id, op.inputs[i], writes_input(op, i)});
    }
  }
  return uses;
}

void check_graph(const Ir& ir, const Graph& graph) {
  const Order order(ir, graph);
  for (const auto& [storage, uses] : uses_of_modified(ir, graph)) {
    for (std::size_t i = 0; i < uses.size(); ++i) {
      for (std::size_t j = i + 1; j < uses.size(); ++j) {
        if (uses[i].op == uses[j].op || (!uses[i].writes && !uses[j].writes)) continue;
        if (order.fixed(uses[i].op, uses[j].op)) {
          if (uses[j].writes) break;  // everything later is checked against this writer
          continue;
        }
        const Use& writer = uses[j].writes ? uses[j] : uses[i];
        const Use& other = uses[j].writes ? uses[i] : uses[j];
        raise<GraphError>(
            "Inplacing ambiguity detected. {}: '{}' is modified here ({}) and {} by {} ({}) in graph '{}', "
            "expected an "
            "order by data or popsr.in_sequence()",
            ir.op(writer.op).def->name, ir.tensor(writer.tensor).name,
            ir.locations().to_string(ir.op(writer.op).location), other.writes ? "modified" : "read",
            ir.op(other.op).def->name, ir.locations().to_string(ir.op(other.op).location), graph.name);
      }
    }
  }
}

}  // namespace

void verify(const Ir& ir) {
  std::vector<GraphId> stack{kMainGraph};
  std::unordered_set<std::uint32_t> seen{kMainGraph.value};
  while (!stack.empty()) {
    const Graph& graph = ir.graph(stack.back());
    stack.pop_back();
    check_graph(ir, graph);
    for (const OpId id : graph.ops) {
      const Op& op = ir.op(id);
      if (op.def->control == Control::kNone) continue;
      const auto callee = op.attr<GraphId>("graph");
      if (seen.insert(callee.value).second) stack.push_back(callee);
    }
  }
}

}  // namespace popsr
