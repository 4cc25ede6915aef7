#include "popsr/effects/verify.h"

#include <algorithm>
#include <map>
#include <span>
#include <unordered_set>

#include "popsr/base/error.h"
#include "popsr/effects/memory.h"
#include "popsr/effects/write_order.h"
#include "popsr/effects/written_inputs.h"
#include "popsr/ir/calls/called_graphs.h"
#include "popsr/ir/flat/flat_program.h"
#include "popsr/ir/op_def.h"

namespace popsr {
namespace {

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

/// The ops that run graphs, by their graph and then in the order of its schedule.
std::map<GraphId, std::vector<OpId>> ops_with_graphs(const Ir& ir) {
  std::map<GraphId, std::vector<OpId>> by_graph;
  for (const OpId id : ir.ops_with_graphs()) by_graph[ir.op(id).graph].push_back(id);
  for (auto& [graph, ops] : by_graph) {
    std::ranges::sort(ops, {}, [&ir](OpId id) { return ir.op(id).schedule.position; });
  }
  return by_graph;
}

/// Calls visit(graph, ops) for the graphs that the main graph reaches, itself first, with their ops that run
/// graphs. Costs nothing for the others.
template <class VisitGraph>
void for_each_reached(const Ir& ir, const VisitGraph& visit) {
  const std::map<GraphId, std::vector<OpId>> by_graph = ops_with_graphs(ir);
  std::vector<GraphId> stack{kMainGraph};
  std::unordered_set<GraphId> seen{kMainGraph};
  while (!stack.empty()) {
    const GraphId graph = stack.back();
    stack.pop_back();
    const auto it = by_graph.find(graph);
    const std::span<const OpId> ops = it == by_graph.end() ? std::span<const OpId>() : it->second;
    visit(ir.graph(graph), ops);
    for (const OpId id : ops) {
      for (const CalledGraph& called : called_graphs(ir, ir.op(id))) {
        if (seen.insert(called.graph).second) stack.push_back(called.graph);
      }
    }
  }
}

}  // namespace

void verify(const Ir& ir) {
  WrittenInputs written(ir);
  for_each_reached(ir, [&](const Graph&, std::span<const OpId> ops) {
    for (const OpId id : ops) {
      for (const CalledGraph& called : called_graphs(ir, ir.op(id))) {
        check_aliases(ir, ir.op(id), called, written);
      }
    }
  });
}

std::map<GraphId, WriteOrder> verify_order(const Ir& ir) {
  std::map<GraphId, WriteOrder> orders;
  for_each_reached(ir, [&](const Graph& graph, std::span<const OpId>) {
    std::vector<UnorderedPair> pairs;
    orders.emplace(graph.id, WriteOrder(ir, graph.id, flat(ir).schedule(graph.id), pairs));
    if (pairs.empty()) return;
    const auto& [root, writer, other] = pairs.front();
    raise<GraphError>(
        "Inplacing ambiguity detected. {}: '{}' is modified here ({}) and {} by {} ({}) in {}, "
        "expected an order by data or popsr.in_sequence()",
        ir.op(writer.op).def->name, ir.tensor(writer.tensor).name,
        ir.locations().to_string(ir.op(writer.op).origin.location), other.writes ? "modified" : "read",
        ir.op(other.op).def->name, ir.locations().to_string(ir.op(other.op).origin.location),
        in_words(graph));
  });
  return orders;
}

std::vector<UnorderedWrites> unordered_writes(const std::vector<UnorderedPair>& pairs) {
  std::vector<UnorderedWrites> result;
  TensorId root = kNone;
  for (const UnorderedPair& pair : pairs) {
    if (pair.root != root) {
      result.push_back({pair.writer.op, pair.other.op, pair.writer.tensor, pair.other.writes, 0});
    }
    root = pair.root;
    ++result.back().pairs;
  }
  return result;
}

}  // namespace popsr
