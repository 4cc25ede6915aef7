#include "popsr/transform/autodiff_builder.h"

#include <algorithm>
#include <ranges>
#include <utility>

#include "popsr/base/error.h"
#include "popsr/ir/calls/called_graphs.h"
#include "popsr/ir/op_def.h"
#include "popsr/transform/graph_editor.h"

namespace popsr {

GradGraphBuilder::GradGraphBuilder(Ir& ir, GraphId forward, const Activity& activity,
                                   const std::map<GraphId, GradGraph>& called, const WholeGradients* whole)
    : ir_(ir),
      forward_(forward),
      graph_(ir.create_named_graph(ir.graph(forward).name + "_bwd")),
      activity_(activity),
      called_(called),
      whole_(whole) {
  const Graph& graph = ir.graph(forward);
  connectable_.insert(graph.inputs.begin(), graph.inputs.end());
  connectable_.insert(graph.outputs.begin(), graph.outputs.end());
  find_call_sites();
}

void GradGraphBuilder::find_call_sites() {
  for (const OpId id : ids<OpId>(ir_.num_ops())) {
    const Op& op = ir_.op(id);
    const std::vector<CalledGraph> called = called_graphs(ir_, op);
    if (std::ranges::find(called, forward_, &CalledGraph::graph) == called.end()) continue;
    if (op.def->program.control == Control::kCall) {
      calls_.push_back(id);
    } else {
      can_stitch_ = false;
    }
  }
}

std::string GradGraphBuilder::local_name(TensorId forward) const {
  const std::string& prefix = ir_.graph(forward_).name;
  return ir_.tensor(forward).name.substr(prefix.empty() ? 0 : prefix.size() + 1);
}

GradGraph GradGraphBuilder::build(const std::vector<TensorId>& provided,
                                  const std::vector<TensorId>& required) {
  result_.forward = forward_;
  result_.graph = graph_;
  for (const TensorId t : provided) {
    const Tensor& tensor = ir_.tensor(t);
    const TensorId input =
        ir_.add_input(graph_, "Gradient___" + local_name(t), tensor.type, tensor.meta_shape);
    result_.inputs.push_back({true, t});
    sums_[t].terms.push_back(input);
    if (whole_ != nullptr) sums_[t].shares.push_back(whole_->whole(t));
  }
  const std::vector<OpId> ops = single_ops(ir_, forward_);
  for (const OpId id : std::views::reverse(ops)) {
    if (is_active(ir_, ir_.op(id), activity_)) differentiate(ir_.op(id));
  }
  for (const TensorId t : required) {
    const TensorId sum = gradient(t);
    if (sum == kNone) continue;
    ir_.add_output(graph_, sum);
    result_.outputs.push_back({true, t});
  }
  name_gradients();
  note_gradients(provided);
  return std::move(result_);
}

void GradGraphBuilder::note_gradients(const std::vector<TensorId>& provided) {
  made_.forward = forward_;
  made_.provided = provided;
  made_.num_inputs = static_cast<std::uint32_t>(result_.inputs.size());
  for (const ExpectedConnection& output : result_.outputs) made_.required.push_back(output.fwd_tensor);
  for (const auto& [forward, sum] : std::map(sums_.begin(), sums_.end())) {
    if (sum.terms.size() == 1) made_.of.try_emplace(sum.terms.front(), forward);
  }
  for (const auto& [part, forward] : parts_) made_.of.try_emplace(part, forward);
  GraphEditor(ir_).set_gradient_graph(graph_, std::move(made_));
}

/// Sums have their names; a single contribution was named after its op.
void GradGraphBuilder::name_gradients() {
  for (const auto& [forward, sum] : std::map(sums_.begin(), sums_.end())) {
    const Tensor& gradient = ir_.tensor(sum.terms.front());
    if (sum.terms.size() > 1 || gradient.uses.producer == kNone) continue;
    const std::string name = "Gradient___" + local_name(forward);
    if (gradient.name.find("/Gradient___") == std::string::npos) GraphEditor(ir_).rename(gradient.id, name);
  }
}

void GradGraphBuilder::differentiate(const Op& op) {
  std::vector<TensorId> cotangents;
  for (const TensorId output : op.outputs) cotangents.push_back(gradient(output));
  if (std::ranges::all_of(cotangents, [](TensorId t) { return t == kNone; })) return;
  const std::vector<TensorId> gradients = grad_of(op, cotangents);
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    if (gradients[i] == kNone || !wants(op.inputs[i])) continue;
    POPSR_CHECK(ir_.tensor(gradients[i]).type == ir_.tensor(op.inputs[i]).type);
    Sum& sum = sums_[op.inputs[i]];
    sum.terms.push_back(gradients[i]);
    sum.location = op.origin.location;
    if (whole_ != nullptr) sum.shares.push_back(whole_->contribution(op, called_input(op, i)));
  }
}

/// The called graph's input that gets input `input` of a call or conditional; kNone for other ops.
TensorId GradGraphBuilder::called_input(const Op& op, std::size_t input) const {
  for (const CalledGraph& called : called_graphs(ir_, op)) {
    if (input >= called.first && input < called.end)
      return ir_.graph(called.graph).inputs[input - called.first];
  }
  return kNone;
}

TensorId GradGraphBuilder::exchange(std::string_view op, TensorId t, const ReplicaGrouping& group,
                                    Origin origin) {
  const OpId id = ir_.emit(graph_, op, {t}, {.attrs = {{"group", group}}, .origin = origin});
  return ir_.op(id).outputs[0];
}

/// Adds terms of one share to each other, then over replicas where they are parts of the gradient.
void GradGraphBuilder::make_whole(TensorId forward, Sum& sum) {
  const Place place = place_of(ir_, forward).value_or(Place{});
  std::vector<TensorId> terms;
  for (std::size_t i = 0; i < sum.terms.size(); ++i) {
    if (std::ranges::find(sum.shares.begin(), sum.shares.begin() + static_cast<std::ptrdiff_t>(i),
                          sum.shares[i]) != sum.shares.begin() + static_cast<std::ptrdiff_t>(i))
      continue;
    std::vector<TensorId> same;
    for (std::size_t k = i; k < sum.terms.size(); ++k) {
      if (sum.shares[k] == sum.shares[i]) same.push_back(sum.terms[k]);
    }
    TensorId term = add_gradients(forward, same, {sum.location, place});
    if (const auto added = whole_->sum_of(sum.shares[i], forward)) {
      term = exchange("replicated_all_reduce", term, added->group, {sum.location, place});
      if (added->broadcast)
        term = exchange("replicated_broadcast", term, *added->broadcast, {sum.location, place});
    }
    terms.push_back(term);
  }
  sum.terms = std::move(terms);
  sum.shares.clear();
}

std::vector<TensorId> GradGraphBuilder::grad_of(const Op& op, const std::vector<TensorId>& cotangents) {
  switch (op.def->program.control) {
    case Control::kCall:
      return grad_of_call(op, cotangents);
    case Control::kConditional:
      return grad_of_conditional(op, cotangents);
    default:
      return grad_of_op(op, cotangents);
  }
}

std::vector<TensorId> GradGraphBuilder::grad_of_op(const Op& op, const std::vector<TensorId>& cotangents) {
  std::vector<bool> wanted;
  for (const TensorId input : op.inputs) wanted.push_back(wants(input));
  Grad context(ir_, graph_, op, cotangents, std::move(wanted), [this](TensorId t) { return value(t); });
  if (whole_ != nullptr) whole_->check(op);
  if (whole_ != nullptr && op.def->grad.of_whole != nullptr) {
    if (context.differentiates(0)) context.set(0, op.def->grad.of_whole(context));
  } else {
    op.def->grad.apply(context);
  }
  return context.gradients();
}

/// Index of the forward graph's input that each output of the callee's gradient graph is the gradient of.
std::vector<std::size_t> GradGraphBuilder::inputs_of_outputs(const GradGraph& callee) const {
  const std::vector<TensorId>& inputs = ir_.graph(callee.forward).inputs;
  std::vector<std::size_t> indices;
  for (const ExpectedConnection& output : callee.outputs) {
    indices.push_back(
        static_cast<std::size_t>(std::ranges::find(inputs, output.fwd_tensor) - inputs.begin()));
  }
  return indices;
}

std::vector<TensorId> GradGraphBuilder::grad_of_call(const Op& op, const std::vector<TensorId>& cotangents) {
  std::vector<TensorId> gradients(op.inputs.size(), kNone);
  const auto it = called_.find(op.get(kGraph));
  if (it == called_.end()) return gradients;
  const GradGraph& callee = it->second;
  const std::vector<std::size_t> targets = inputs_of_outputs(callee);
  const auto wanted = [&](std::size_t i) { return i < op.inputs.size() && wants(op.inputs[i]); };
  if (std::ranges::none_of(targets, wanted)) return gradients;
  const OpId call = ir_.emit(graph_, "call", arguments(op, 0, callee, cotangents),
                             {.attrs = {{"graph", callee.graph}}, .origin = op.origin});
  for (std::size_t k = 0; k < targets.size(); ++k) {
    if (targets[k] < gradients.size()) gradients[targets[k]] = ir_.op(call).outputs[k];
  }
  return gradients;
}

/// Inputs of the gradient graph of one of the graphs that `op` calls; that graph's inputs are the op's from
/// `first` on.
std::vector<TensorId> GradGraphBuilder::arguments(const Op& op, std::size_t first, const GradGraph& callee,
                                                  const std::vector<TensorId>& cotangents) {
  std::vector<TensorId> inputs;
  for (const ExpectedConnection& input : callee.inputs) {
    inputs.push_back(input.is_gradient ? cotangent_of_call(op, input.fwd_tensor, cotangents)
                                       : forward_of_call(op, first, input.fwd_tensor));
  }
  return inputs;
}

/// A graph may return one tensor several times: its gradient is the sum.
TensorId GradGraphBuilder::cotangent_of_call(const Op& op, TensorId callee_output,
                                             const std::vector<TensorId>& cotangents) {
  const std::vector<TensorId>& outputs = ir_.graph(ir_.tensor(callee_output).graph).outputs;
  std::vector<TensorId> terms;
  for (std::size_t k = 0; k < cotangents.size() && k < outputs.size(); ++k) {
    if (outputs[k] == callee_output && cotangents[k] != kNone) terms.push_back(cotangents[k]);
  }
  return terms.empty() ? zeros(graph_, callee_output, op.origin) : add(graph_, terms, "add_out", op.origin);
}

TensorId GradGraphBuilder::forward_of_call(const Op& op, std::size_t first, TensorId callee_tensor) {
  const Graph& callee = ir_.graph(ir_.tensor(callee_tensor).graph);
  if (++values_of_calls_ > kMaxValuesOfCalls) {
    raise<GraphError>(
        "autodiff: the gradient graph needs too many values of calls, got more than {} in graph '{}', "
        "expected fewer calls inside calls",
        kMaxValuesOfCalls, ir_.graph(forward_).name);
  }
  if (const auto it = std::ranges::find(callee.inputs, callee_tensor); it != callee.inputs.end()) {
    return value(op.inputs[first + static_cast<std::size_t>(it - callee.inputs.begin())]);
  }
  if (const auto it = std::ranges::find(callee.outputs, callee_tensor); it != callee.outputs.end()) {
    return value(op.outputs[static_cast<std::size_t>(it - callee.outputs.begin())]);
  }
  raise<GraphError>(
      "autodiff: gradient graph needs '{}', got neither an input nor an output of graph '{}', expected one",
      ir_.tensor(callee_tensor).name, callee.name);
}

TensorId GradGraphBuilder::gradient(TensorId forward) {
  const auto it = sums_.find(forward);
  if (it == sums_.end()) return kNone;
  Sum& sum = it->second;
  if (!sum.shares.empty()) make_whole(forward, sum);
  if (sum.terms.size() > 1) {
    const Place place = place_of(ir_, forward).value_or(Place{});
    sum.terms = {add_gradients(forward, sum.terms, {sum.location, place})};
  }
  return sum.terms.front();
}

TensorId GradGraphBuilder::add_gradients(TensorId forward, const std::vector<TensorId>& terms,
                                         Origin origin) {
  TensorId sum = terms.front();
  parts_.emplace_back(sum, forward);
  for (const TensorId term : terms | std::views::drop(1)) {
    sum = add(graph_, {sum, term}, "Gradient___" + local_name(forward), origin);
    parts_.emplace_back(term, forward);
    made_.of.emplace(sum, forward);
  }
  return sum;
}

TensorId GradGraphBuilder::add(GraphId graph, const std::vector<TensorId>& terms, const std::string& name,
                               Origin origin) {
  TensorId sum = terms.front();
  for (const TensorId term : terms | std::views::drop(1)) {
    const OpId op = ir_.emit(graph, "add", {sum, term}, {.output_names = {name}, .origin = origin});
    sum = ir_.op(op).outputs[0];
  }
  return sum;
}

TensorId GradGraphBuilder::zeros(GraphId graph, TensorId forward, Origin origin) {
  const Tensor& like = ir_.tensor(forward);
  const OpId op = ir_.emit(graph, "init", {},
                           {.attrs = {{"shape", like.type.shape},
                                      {"dtype", like.type.dtype},
                                      {"init_type", std::string("zero")},
                                      {"meta_shape", like.meta_shape}},
                            .origin = origin});
  return ir_.op(op).outputs[0];
}

TensorId GradGraphBuilder::value(TensorId forward) {
  if (const auto it = values_.find(forward); it != values_.end()) return it->second;
  const Tensor& tensor = ir_.tensor(forward);
  if (tensor.kind == TensorKind::kConstant) {
    return values_[forward] = ir_.add_constant(graph_, local_name(forward), tensor.type, tensor.state.data);
  }
  if (is_recomputed(forward)) {
    recompute(forward);
    return values_.at(forward);
  }
  if (!connectable_.contains(forward)) stitch(forward);
  return connect(forward);
}

TensorId GradGraphBuilder::connect(TensorId forward) {
  const Tensor& tensor = ir_.tensor(forward);
  result_.inputs.push_back({false, forward});
  return values_[forward] = ir_.add_input(graph_, local_name(forward), tensor.type, tensor.meta_shape);
}

/// The callers of the main graph's gradient graph are in the main graph: they see its tensors as they are.
void GradGraphBuilder::stitch(TensorId forward) {
  connectable_.insert(forward);
  if (forward_ == kMainGraph) return;
  ir_.add_output(forward_, forward);
  for (const OpId call : calls_)
    GraphEditor(ir_).add_call_output(call, forward, local_name(forward) + "_out");
}

bool GradGraphBuilder::is_recomputed(TensorId forward) const {
  return !can_stitch_ && !connectable_.contains(forward) &&
         ir_.tensor(forward).kind == TensorKind::kActivation;
}

/// Clones the ops that make the tensor, in schedule order.
void GradGraphBuilder::recompute(TensorId forward) {
  std::set<OpId> needed;
  std::vector<TensorId> stack{forward};
  while (!stack.empty()) {
    const TensorId t = stack.back();
    stack.pop_back();
    if (t == kNone || values_.contains(t) || !is_recomputed(t)) continue;
    if (!needed.insert(ir_.tensor(t).uses.producer).second) continue;
    const Op& op = ir_.op(ir_.tensor(t).uses.producer);
    stack.insert(stack.end(), op.inputs.begin(), op.inputs.end());
  }
  for (const OpId id : needed) clone(ir_.op(id));
}

namespace {

/// An op, or one of the graphs that it calls, that acts on streams or remote memory: running it twice is not
/// running it once.
const Op* find_outside_access(const Ir& ir, const Op& op, std::set<GraphId>& seen) {
  const auto is_stream = [](const AttrDef& attr) { return attr.type == AttrType::kStream; };
  if (op.def->program.remote != Remote::kNone || op.def->program.observable ||
      std::ranges::any_of(op.def->attrs, is_stream))
    return &op;
  for (const CalledGraph& called : called_graphs(ir, op)) {
    if (!seen.insert(called.graph).second) continue;
    for (const OpId inner : single_ops(ir, called.graph)) {
      if (const Op* found = find_outside_access(ir, ir.op(inner), seen)) return found;
    }
  }
  return nullptr;
}

}  // namespace

void GradGraphBuilder::clone(const Op& op) {
  EmitArgs args{.origin = op.origin, .allow_stochastic = op.noise.allow_stochastic};
  std::set<GraphId> seen;
  if (const Op* outside = find_outside_access(ir_, op, seen)) {
    raise<GraphError>("autodiff: '{}' cannot be recomputed, got {} at {}, expected it to be an output of {}",
                      ir_.tensor(op.outputs[0]).name, outside->def->name,
                      ir_.locations().to_string(outside->origin.location), in_words(ir_.graph(forward_)));
  }
  for (std::size_t i = 0; i < op.attrs.size(); ++i) {
    args.attrs.emplace_back(std::string(op.def->attrs[i].name), op.attrs[i]);
  }
  for (const TensorId output : op.outputs) args.output_names.push_back(local_name(output));
  std::vector<TensorId> inputs;
  for (const TensorId input : op.inputs) inputs.push_back(input == kNone ? kNone : value(input));
  const OpId copy = ir_.emit(graph_, op.def->name, std::move(inputs), std::move(args));
  for (std::size_t k = 0; k < op.outputs.size(); ++k) {
    values_.try_emplace(op.outputs[k], ir_.op(copy).outputs[k]);
  }
}

}  // namespace popsr
