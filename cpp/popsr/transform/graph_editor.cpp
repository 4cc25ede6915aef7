#include "popsr/transform/graph_editor.h"

#include <algorithm>

#include "popsr/base/error.h"
#include "popsr/ir/edit/journal.h"
#include "popsr/ir/edit/transaction.h"
#include "popsr/ir/op_def.h"

namespace popsr {

void GraphEditor::clear_sequence(GraphId id) {
  Transaction transaction(ir_);
  if (!ir_.graphs_[id].sequence.since().empty()) ir_.journal_->save_since(id);
  ir_.extend_graph(id).sequence.clear();
  transaction.commit();
}

void GraphEditor::rename(TensorId id, std::string_view name) {
  Transaction transaction(ir_);
  ir_.edit_tensor(id);
  ir_.set_name(id, name);
  ir_.changed();
  transaction.commit();
}

void GraphEditor::set_gradient_graph(GraphId graph, GradientGraph made) {
  Transaction transaction(ir_);
  ir_.gradient_graphs_.insert_or_assign(graph, std::make_shared<const GradientGraph>(std::move(made)));
  ir_.changed();
  transaction.commit();
}

void GraphEditor::remove_output(GraphId graph, std::size_t index) {
  Graph& g = ir_.graphs_[graph];
  if (g.called()) {
    raise<GraphError>(
        "graph_output: an output of a graph that is called, got graph '{}', expected one that is not",
        g.name);
  }
  POPSR_CHECK(index < g.outputs.size());
  Transaction transaction(ir_);
  ir_.journal_->save_output(graph, index);
  g.outputs.erase(g.outputs.begin() + static_cast<std::ptrdiff_t>(index));
  ir_.changed();
  transaction.commit();
}

void GraphEditor::mark_modified(OpId op, std::uint32_t index) {
  POPSR_CHECK(ir_.ops_[op].def->program.control != Control::kNone && index < ir_.ops_[op].inputs.size());
  ir_.check_writable(ir_.ops_[op].def->name, std::to_string(index), ir_.tensors_[ir_.ops_[op].inputs[index]]);
  Transaction transaction(ir_);
  auto& modified = ir_.extend_op(op).call.modified;
  if (std::ranges::find(modified, index) == modified.end()) modified.push_back(index);
  ir_.changed();
  transaction.commit();
}

TensorId GraphEditor::add_call_output(OpId op, TensorId callee_output, std::string_view name) {
  Transaction transaction(ir_);
  const TensorId id =
      ir_.add_tensor(ir_.ops_[op].graph, name, ir_.tensors_[callee_output].type, TensorKind::kActivation);
  ir_.tensors_[id].uses.producer = op;
  ir_.tensors_[id].meta_shape = ir_.tensors_[callee_output].meta_shape;
  ir_.extend_op(op).outputs.push_back(id);
  transaction.commit();
  return id;
}

}  // namespace popsr
