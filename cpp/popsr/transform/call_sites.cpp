// GraphEditor::add_called_input: graphs that gain an input after ops that run them were made.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <ranges>

#include "popsr/base/error.h"
#include "popsr/ir/calls/called_graphs.h"
#include "popsr/ir/edit/transaction.h"
#include "popsr/ir/op_def.h"
#include "popsr/transform/graph_editor.h"

namespace popsr {
namespace {

/// The ops that run the graph.
std::vector<OpId> sites_of(const Ir& ir, GraphId graph) {
  std::vector<OpId> sites;
  for (const OpId id : ir.ops_with_graphs()) {
    const std::vector<CalledGraph> called = called_graphs(ir, ir.op(id));
    if (std::ranges::find(called, graph, &CalledGraph::graph) != called.end()) sites.push_back(id);
  }
  return sites;
}

std::map<OpId, TensorId> by_site(const Ir& ir, const std::vector<OpId>& sites,
                                 const std::vector<SiteOperand>& operands) {
  std::map<OpId, TensorId> result;
  for (const SiteOperand& operand : operands) result.emplace(operand.op, operand.tensor);
  for (const auto& [op, tensor] : result) {
    if (std::ranges::find(sites, op) != sites.end()) continue;
    raise<GraphError>(
        "graph_input: {} does not run the graph, got operand '{}' for it, expected an op that does",
        ir.op(op).def->name, ir.tensor(tensor).name);
  }
  return result;
}

}  // namespace

void GraphEditor::check_site_operand(const Op& op, std::string_view input, const TensorType& type,
                                     const Tensor& tensor) const {
  if (tensor.graph != op.graph) {
    raise<GraphError>("{}: input '{}' is of another graph, got '{}' of {}, expected {}", op.def->name, input,
                      tensor.name, in_words(ir_.graphs_[tensor.graph]), in_words(ir_.graphs_[op.graph]));
  }
  if (tensor.kind == TensorKind::kRemote || tensor.state.home != kNone) {
    raise<GraphError>("{}: input '{}' is not on the device, got '{}', expected what is loaded from it",
                      op.def->name, input, tensor.name);
  }
  if (tensor.type.dtype != type.dtype) {
    raise<DTypeError>("{}: dtype of input '{}' differs, got {} '{}', expected {}", op.def->name, input,
                      to_string(tensor.type), tensor.name, to_string(type));
  }
  if (tensor.type.shape != type.shape) {
    raise<ShapeError>("{}: shape of input '{}' differs, got {} '{}', expected {}", op.def->name, input,
                      to_string(tensor.type), tensor.name, to_string(type));
  }
  if (tensor.uses.producer != kNone &&
      ir_.ops_[tensor.uses.producer].schedule.position >= op.schedule.position) {
    raise<GraphError>("{}: input '{}' is made later, got '{}' at {}, expected a tensor from before {}",
                      op.def->name, input, tensor.name,
                      ir_.locations_.to_string(ir_.ops_[tensor.uses.producer].origin.location),
                      ir_.locations_.to_string(op.origin.location));
  }
}

void GraphEditor::insert_operand(OpId id, std::uint32_t index, TensorId tensor, bool modified) {
  Op& op = ir_.edit_op(id);
  op.inputs.insert(op.inputs.begin() + index, tensor);
  for (std::uint32_t& each : op.call.modified) {
    if (each >= index) ++each;
  }
  if (modified) op.call.modified.push_back(index);
  ir_.set_first_use(tensor, std::min(ir_.tensors_[tensor].uses.first_use, id));
}

TensorId GraphEditor::add_called_input(GraphId graph, std::string_view name, TensorType type,
                                       Shape meta_shape, bool by_ref,
                                       const std::vector<SiteOperand>& operands) {
  ir_.check_size("graph_input", type);
  const std::vector<OpId> sites = sites_of(ir_, graph);
  const std::map<OpId, TensorId> given = by_site(ir_, sites, operands);
  for (const OpId id : sites) {
    const Op& op = ir_.ops_[id];
    const auto it = given.find(id);
    if (it == given.end()) {
      raise<GraphError>("graph_input: {} at {} has no tensor for input '{}' of graph '{}', expected one",
                        op.def->name, ir_.locations_.to_string(op.origin.location), name,
                        ir_.graphs_[graph].name);
    }
    check_site_operand(op, name, type, ir_.tensors_[it->second]);
    if (by_ref) ir_.check_writable(op.def->name, name, ir_.tensors_[it->second]);
  }

  Transaction transaction(ir_);
  for (const auto& [id, tensor] : given) {
    const std::vector<CalledGraph> all = called_graphs(ir_, ir_.ops_[id]);
    // From the last: the places of the others stay.
    for (const CalledGraph& called : all | std::views::reverse) {
      if (called.graph == graph) insert_operand(id, called.end, tensor, by_ref);
    }
  }
  const TensorId id = ir_.add_tensor(graph, name, std::move(type), TensorKind::kInput);
  ir_.tensors_[id].meta_shape = std::move(meta_shape);
  ir_.tensors_[id].memory.by_ref = by_ref;
  ir_.graphs_[graph].inputs.push_back(id);
  transaction.commit();
  return id;
}

}  // namespace popsr
