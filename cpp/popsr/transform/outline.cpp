// GraphEditor::outline: the ops at the end of a schedule become the body of a loop.
//
// Ops and tensors move as they are: they keep their numbers, so whoever knows one still does. What the ops
// take from outside becomes an input of the body, one for each tensor with memory of its own; inputs that
// they write are by reference. Views of such memory are made again inside, and constants are copied.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <unordered_set>

#include "popsr/base/error.h"
#include "popsr/effects/written_inputs.h"
#include "popsr/ir/calls/called_graphs.h"
#include "popsr/ir/edit/transaction.h"
#include "popsr/ir/op_def.h"
#include "popsr/transform/graph_editor.h"

namespace popsr {

class GraphEditor::Outliner {
 public:
  Outliner(GraphEditor& editor, GraphId graph, std::uint32_t first, const OutlineArgs& args)
      : editor_(editor), ir_(editor.ir_), graph_(graph), first_(first), args_(args) {}

  Outlined run() {
    find_moved();
    check_outputs();
    find_captured();
    check_depth();
    Transaction transaction(ir_);
    ir_.edit_graph(graph_);
    body_ = ir_.create_graph(args_.stem);
    add_inputs();
    make_views();
    move_tensors();
    move_ops();
    move_views();
    cut_schedule();
    emit_loop();
    transaction.commit();
    return {body_, loop_, std::move(moved_)};
  }

 private:
  Graph& from() { return ir_.graphs_[graph_]; }
  Graph& body() { return ir_.graphs_[body_]; }
  bool is_moved(OpId id) const { return ops_.contains(id); }
  bool is_made(TensorId id) const { return made_.contains(id); }
  std::string local_name(TensorId id) const {
    const std::string& prefix = ir_.graphs_[graph_].name;
    return ir_.tensors_[id].name.substr(prefix.empty() ? 0 : prefix.size() + 1);
  }
  std::int64_t made_at(TensorId id) const {
    const OpId producer = ir_.tensors_[id].uses.producer;
    return producer == kNone ? -1 : std::int64_t{ir_.ops_[producer].schedule.position};
  }

  void find_moved();
  void check_outputs() const;
  void check_carried(std::size_t output) const;
  void find_captured();
  void capture(TensorId root, TensorId alias);
  void check_depth();
  void add_inputs();
  void make_views();
  void move_tensors();
  void move_ops();
  void move_op(Op& op);
  void move_views();
  void cut_schedule();
  void index_tensors(Graph& graph);
  void emit_loop();
  TensorId inside(TensorId outside);

  GraphEditor& editor_;
  Ir& ir_;
  GraphId graph_;
  std::uint32_t first_;
  const OutlineArgs& args_;
  std::vector<OpId> singles_;              ///< Ops that move, merged ones as their parts, in schedule order.
  std::set<OpId> ops_;                     ///< Ops that are moved, and merged ops.
  std::unordered_set<TensorId> made_;      ///< Outputs of the moved ops.
  std::set<TensorId> outer_;               ///< Tensors from outside that the ops use.
  std::vector<TensorId> roots_;            ///< Roots of outer_; carried graph inputs come first.
  std::map<TensorId, TensorId> operands_;  ///< Last name before the loop of each root.
  std::map<std::uint32_t, OpId> views_;    ///< Ops outside that make views of roots_, by position.
  std::map<TensorId, TensorId> inside_;    ///< Tensor inside by storage outside.
  std::set<OpId> after_;                   ///< Ops that the loop follows.
  std::vector<TensorId> moved_;
  GraphId body_;
  OpId loop_ = kNone;
};

void GraphEditor::Outliner::find_moved() {
  POPSR_CHECK(args_.count >= 1 && first_ < from().ops.size());
  for (std::size_t i = first_; i < from().ops.size(); ++i) {
    const Op& op = ir_.ops_[from().ops[i]];
    ops_.insert(op.id);
    if (op.schedule.parts.empty()) singles_.push_back(op.id);
    singles_.insert(singles_.end(), op.schedule.parts.begin(), op.schedule.parts.end());
    made_.insert(op.outputs.begin(), op.outputs.end());
  }
  ops_.insert(singles_.begin(), singles_.end());
}

void GraphEditor::Outliner::check_outputs() const {
  const Graph& graph = ir_.graphs_[graph_];
  if (args_.carries && graph.inputs.size() < graph.outputs.size()) {
    raise<GraphError>(
        "repeat: graph '{}' has fewer inputs than outputs, got {} and {}, expected an input per output",
        graph.name, graph.inputs.size(), graph.outputs.size());
  }
  for (std::size_t k = 0; k < graph.outputs.size(); ++k) {
    if (args_.carries) {
      check_carried(k);
    } else if (is_made(graph.outputs[k])) {
      raise<GraphError>(
          "repeat: '{}' is made in the loop, got output {} of graph '{}', expected no use of it outside",
          ir_.tensors_[graph.outputs[k]].name, k, graph.name);
    }
  }
}

void GraphEditor::Outliner::check_carried(std::size_t output) const {
  const Graph& graph = ir_.graphs_[graph_];
  const Tensor& made = ir_.tensors_[graph.outputs[output]];
  const Tensor& carried = ir_.tensors_[graph.inputs[output]];
  if (made.type.dtype != carried.type.dtype) {
    raise<DTypeError>(
        "repeat: loop-carried dtypes differ, got {} from output '{}', expected {} of input '{}'",
        to_string(made.type), made.name, to_string(carried.type), carried.name);
  }
  if (made.type.shape != carried.type.shape || made.meta_shape != carried.meta_shape) {
    raise<ShapeError>(
        "repeat: loop-carried shapes differ, got {} from output '{}', expected {} of input '{}'",
        to_string(made.type), made.name, to_string(carried.type), carried.name);
  }
}

void GraphEditor::Outliner::capture(TensorId root, TensorId alias) {
  const auto [it, is_new] = operands_.try_emplace(root, alias);
  if (is_new) roots_.push_back(root);
  if (made_at(alias) > made_at(it->second)) it->second = alias;
}

/// Follows the operands of the ops to their memory, through the ops that make views of it.
void GraphEditor::Outliner::find_captured() {
  std::vector<TensorId> stack;
  if (args_.carries) {
    for (const TensorId t : from().inputs) capture(t, t);
    stack = from().outputs;
  }
  for (const OpId id : singles_) {
    const Op& op = ir_.ops_[id];
    stack.insert(stack.end(), op.inputs.begin(), op.inputs.end());
    for (const OpId before : op.schedule.after) {
      if (!is_moved(before)) after_.insert(before);
    }
  }
  std::ranges::reverse(stack);
  while (!stack.empty()) {
    const TensorId t = stack.back();
    stack.pop_back();
    if (t == kNone || is_made(t) || !outer_.insert(t).second) continue;
    const Tensor& storage = ir_.tensors_[ir_.tensors_[t].memory.storage];
    if (ir_.tensors_[t].uses.producer != kNone) after_.insert(ir_.tensors_[t].uses.producer);
    if (storage.memory.view) {
      const Op& maker = ir_.ops_[storage.uses.producer];
      views_.emplace(maker.schedule.position, maker.id);
      stack.insert(stack.end(), maker.inputs.begin(), maker.inputs.end());
    } else if (storage.kind != TensorKind::kConstant) {
      capture(storage.id, t);
    }
  }
}

void GraphEditor::Outliner::check_depth() {
  std::uint32_t depth = 0;
  for (const OpId id : singles_) {
    for (const CalledGraph& called : called_graphs(ir_, ir_.ops_[id])) {
      depth = std::max(depth, ir_.graphs_[called.graph].calls.depth + 1);
    }
  }
  popsr::check_depth("repeat", from().name, depth);
}

void GraphEditor::Outliner::add_inputs() {
  for (const TensorId root : roots_) {
    const Tensor& outer = ir_.tensors_[root];
    inside_[root] = ir_.add_input(body_, local_name(root), outer.type, outer.meta_shape, outer.memory.by_ref);
  }
}

/// The body's tensor for one from outside.
TensorId GraphEditor::Outliner::inside(TensorId outside) {
  const Tensor& storage = ir_.tensors_[ir_.tensors_[outside].memory.storage];
  if (const auto it = inside_.find(storage.id); it != inside_.end()) return it->second;
  POPSR_CHECK(storage.kind == TensorKind::kConstant);
  return inside_[storage.id] =
             ir_.add_constant(body_, local_name(storage.id), storage.type, storage.state.data);
}

void GraphEditor::Outliner::make_views() {
  for (const auto& [position, id] : views_) {
    const Op& op = ir_.ops_[id];
    EmitArgs args{.output_names = {local_name(op.outputs[0])},
                  .origin = op.origin,
                  .allow_stochastic = op.noise.allow_stochastic};
    for (std::size_t i = 0; i < op.attrs.size(); ++i) {
      args.attrs.emplace_back(std::string(op.def->attrs[i].name), op.attrs[i]);
    }
    std::vector<TensorId> inputs;
    for (const TensorId input : op.inputs) inputs.push_back(input == kNone ? kNone : inside(input));
    const OpId copy = ir_.emit(body_, op.def->name, std::move(inputs), std::move(args));
    inside_[op.outputs[0]] = ir_.ops_[copy].outputs[0];
  }
}

void GraphEditor::Outliner::index_tensors(Graph& graph) {
  graph.has_views = false;
  for (std::uint32_t i = 0; i < graph.tensors.size(); ++i) {
    ir_.set_index(graph.tensors[i], i, ir_.storage_index(graph.tensors[i]));
    if (ir_.tensors_[graph.tensors[i]].memory.view) graph.has_views = true;
  }
  for (const TensorId id : graph.tensors) {
    const Tensor& tensor = ir_.tensors_[id];
    const bool is_remote = tensor.kind == TensorKind::kRemote;
    ir_.set_index(id, tensor.index, is_remote ? kNone : ir_.tensors_[tensor.memory.storage].index);
  }
}

void GraphEditor::Outliner::move_tensors() {
  std::vector<TensorId> stay;
  for (const TensorId id : from().tensors) (is_made(id) ? moved_ : stay).push_back(id);
  for (const TensorId id : moved_) {
    const std::string name = local_name(id);
    Tensor& tensor = ir_.edit_tensor(id);
    tensor.graph = body_;
    ir_.set_name(id, name);
    if (!is_made(tensor.memory.storage)) tensor.memory.storage = inside(tensor.memory.storage);
  }
  from().tensors = std::move(stay);
  body().tensors.insert(body().tensors.end(), moved_.begin(), moved_.end());
}

void GraphEditor::Outliner::move_op(Op& op) {
  op.graph = body_;
  for (TensorId& input : op.inputs) {
    if (input == kNone || is_made(input)) continue;
    input = inside(input);
    ir_.set_first_use(input, std::min(ir_.tensors_[input].uses.first_use, op.id));
  }
  std::erase_if(op.schedule.after, [this](OpId id) { return !is_moved(id); });
}

void GraphEditor::Outliner::move_ops() {
  const std::vector<OpId> whole(from().ops.begin() + first_, from().ops.end());
  from().ops.resize(first_);
  for (const OpId id : ops_) move_op(ir_.edit_op(id));
  for (const OpId id : whole) {
    const auto position = static_cast<std::uint32_t>(body().ops.size());
    ir_.set_position(id, position);
    for (const OpId part : ir_.ops_[id].schedule.parts) ir_.set_position(part, position);
    body().ops.push_back(id);
  }
  std::vector<OpId> made = singles_;
  std::ranges::sort(made);  // numbers are given in the order in which ops are made
  for (const OpId id : made) {
    ir_.number_op(ir_.ops_[id]);  // which was kept as it moved
    for (const CalledGraph& called : called_graphs(ir_, ir_.ops_[id])) {
      body().calls.depth = std::max(body().calls.depth, ir_.graphs_[called.graph].calls.depth + 1);
    }
  }
}

/// Views of memory that was outside are now of inputs.
void GraphEditor::Outliner::move_views() {
  const auto is_moved_view = [this](TensorId id) { return is_made(id); };
  std::set<TensorId> roots;
  for (const OpId id : singles_) {
    if (!ir_.ops_[id].def->memory.view) continue;
    for (const Region& region : ir_.tensors_[ir_.ops_[id].outputs[0]].memory.view->regions)
      roots.insert(region.root);
  }
  for (const TensorId root : roots) {
    std::vector<TensorId>& views = ir_.edit_views(root);
    std::erase_if(views, is_moved_view);
    ir_.edit_tensor(root).memory.viewed = Viewed::kNo;
    for (const TensorId view : views) {
      for (const Region& region : ir_.tensors_[view].memory.view->regions) {
        if (region.root != root) continue;
        Viewed& viewed = ir_.tensors_[root].memory.viewed;
        viewed = std::max(viewed, region.whole ? Viewed::kWhole : Viewed::kPartly);
      }
    }
  }
  for (const OpId id : singles_) {
    if (ir_.ops_[id].def->memory.view) ir_.add_view(ir_.ops_[id]);
  }
  index_tensors(from());
  index_tensors(body());
}

/// Updates the graph's lists for the ops that are left.
void GraphEditor::Outliner::cut_schedule() {
  from().next = {};
  for (const TensorId t : outer_) ir_.set_first_use(t, kNone);
  for (const OpId id : single_ops(ir_, graph_)) {
    const Op& op = ir_.ops_[id];
    if (op.def->program.control != Control::kNone) {
      from().next.call = std::max(from().next.call, op.call.index + 1);
    } else if (op.def->numerics.random || rounds(ir_, op)) {
      from().next.noise = std::max(from().next.noise, op.noise.index + 1);
    }
    for (const TensorId input : op.inputs) {
      if (input != kNone) ir_.set_first_use(input, std::min(ir_.tensors_[input].uses.first_use, id));
    }
  }
}

void GraphEditor::Outliner::emit_loop() {
  EmitArgs args{.attrs = {{"graph", body_}, {"count", args_.count}}, .origin = args_.origin};
  if (args_.carries) {
    for (const TensorId t : from().outputs) {
      body().outputs.push_back(is_made(t) ? t : inside(t));
      args.output_names.push_back(
          ir_.tensors_[t].name.substr(ir_.graphs_[ir_.tensors_[t].graph].name.size() + 1));
    }
  }
  std::vector<TensorId> operands;
  for (const TensorId root : roots_) operands.push_back(operands_.at(root));
  loop_ = ir_.emit(graph_, "repeat", operands, std::move(args));
  if (args_.carries) from().outputs = ir_.ops_[loop_].outputs;
  for (const TensorId operand : operands) after_.erase(ir_.tensors_[operand].uses.producer);
  ir_.ops_[loop_].schedule.after.assign(after_.begin(), after_.end());
  from().sequence.replace([this](OpId id) { return is_moved(id); }, loop_);
  WrittenInputs written(ir_);
  const std::vector<bool>& of_body = written.of(body_);
  for (std::uint32_t i = 0; i < of_body.size(); ++i) {
    if (!of_body[i]) continue;
    ir_.tensors_[body().inputs[i]].memory.by_ref = true;
    editor_.mark_modified(loop_, i);
  }
}

Outlined GraphEditor::outline(GraphId graph, std::uint32_t first, const OutlineArgs& args) {
  return Outliner(*this, graph, first, args).run();
}

}  // namespace popsr
