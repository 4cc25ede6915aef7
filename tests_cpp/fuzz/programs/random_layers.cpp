#include "fuzz/programs/random_layers.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "popsr/base/error.h"

namespace popsr::test {

void RandomLayers::layer() {
  const TensorId x = any_for("softmax");
  if (frames_.size() > kMaxDepth) return compute_anything();
  Frame inner{.kind = Frame::Kind::kCall, .graph = ir().create_graph("layer"), .pure = true};
  p_.at = inner.graph;
  inner.arguments.push_back(x);
  inner.pools[kValues].push_back(ir().add_input(inner.graph, "x", type_of(x), ir().tensor(x).meta_shape));
  frames_.push_back(std::move(inner));
  for (std::size_t left = 1 + below(4); left > 0; --left) link(frame().pools[kValues].back());
  ir().add_output(frame().graph, frame().pools[kValues].back());
  const Frame done = close_frame();
  const Callable callable = callables_.back();
  const OpId forward = p_.emit("call", done.arguments, {{"graph", done.graph}});
  for (const TensorId t : ir().op(forward).outputs) add_value(t);
  differentiate(callable);
}

/// One more op of the chain.
void RandomLayers::link(TensorId last) {
  switch (below(8)) {
    case 0:
      return link_along_axis(last);
    case 1:
    case 2:
      return link_members(last);
    case 3:
      attempt("matmul", {last, like(last)}, {{"transpose_rhs", below(2) == 0}});
      return;
    case 4:
      return link_graph(last);
    default:
      return link_elementwise(last);
  }
}

void RandomLayers::link_elementwise(TensorId last) {
  const OpPools& pools = op_pools();
  const std::size_t kind = below(pools.unary.size() + pools.binary.size() + 12);
  if (kind < pools.unary.size()) {
    attempt(pools.unary[kind], {last});
  } else if (kind < pools.unary.size() + pools.binary.size()) {
    attempt(pools.binary[kind - pools.unary.size()], {last, like(last)});
  } else if (kind % 3 == 0) {
    const std::size_t made = frame().pools[kValues].size();
    attempt("dropout", {last, seed()}, {{"p", 0.5}});
    if (frame().pools[kValues].size() > made) frame().pools[kValues].resize(made + 1);  // without the mask
  } else if (kind % 3 == 1) {
    attempt("cast", {last}, {{"data_type", below(2) == 0 ? DType::kFloat32 : DType::kBFloat16}});
  } else {
    attempt("scale", {last}, {{"factor", 0.5}});
  }
}

void RandomLayers::link_along_axis(TensorId last) {
  const auto rank = type_of(last).shape.size();
  const auto axis = static_cast<std::int64_t>(below(std::max<std::size_t>(rank, 1)));
  const std::vector<std::int64_t> axes{axis};
  switch (below(6)) {
    case 0:
      attempt("softmax", {last}, {{"axis", axis}});
      return;
    case 1:
      attempt("cumsum", {last}, {{"dim", axis}});
      return;
    case 2:
      attempt("mean", {last}, {{"axis", axes}, {"keepdims", true}});
      return;
    case 3:
      attempt("max", {last}, {{"axis", axes}, {"keepdims", true}});
      return;
    case 4:
      attempt("transpose", {last});
      return;
    default:
      attempt("sum", {last}, {{"axis", axes}});
  }
}

void RandomLayers::link_members(TensorId last) {
  switch (below(5)) {
    case 0:
      attempt("replicated_all_reduce_identical_inputs", {last}, {{"group", grouping()}});
      return;
    case 1:
      attempt("replicated_all_reduce_identical_grad_inputs", {last}, {{"group", grouping()}});
      return;
    case 2:
      if (elements_of(last) > 64) return;
      attempt("replicated_all_gather", {last},
              {{"group", grouping()}, {"output_shape", std::string("concat")}});
      return;
    case 3:
      attempt("replicated_broadcast", {last}, {{"root", std::int64_t{0}}, {"group", grouping()}});
      return;
    default:
      attempt("replicated_slice", {last}, {{"group", grouping()}});
  }
}

/// A call of a layer, or a conditional whose branches both are it.
void RandomLayers::link_graph(TensorId last) {
  if (gradients_.empty()) return link_elementwise(last);
  auto it = gradients_.begin();
  std::advance(it, static_cast<std::ptrdiff_t>(below(gradients_.size())));
  const Graph& graph = ir().graph(it->second.forward);
  std::vector<TensorId> arguments;
  const bool branches = below(2) == 0;
  const TensorId holds = branches ? condition() : kNone;
  if (graph.inputs.empty() || !same_type(graph.inputs[0], last)) return link_elementwise(last);
  if (!append_arguments({graph.id, {}}, arguments)) return link_elementwise(last);
  arguments[0] = last;
  const std::vector<TensorId> once = arguments;
  if (branches) {
    arguments.insert(arguments.begin(), holds);
    arguments.insert(arguments.end(), once.begin(), once.end());
  }
  const OpId op =
      branches ? p_.emit("conditional", arguments, {{"then_branch", graph.id}, {"else_branch", graph.id}})
               : p_.emit("call", arguments, {{"graph", graph.id}});
  add_value(ir().op(op).outputs.at(0));
}

void RandomLayers::differentiate(const Callable& callable) {
  const GraphId graph = callable.graph;
  if (!gradients_.contains(graph)) {
    const std::vector<TensorId> required{ir().graph(graph).inputs[0]};
    gradients_.merge(autodiff(ir(), graph, {.grads_required = required, .called = gradients_}));
  }
  const GradGraph& grad = gradients_.at(graph);
  std::vector<TensorId> arguments;
  if (!append_arguments(callable, arguments)) return;
  const OpId forward = p_.emit("call", arguments, {{"graph", graph}});
  std::vector<TensorId> inputs;
  for (const ExpectedConnection& each : grad.inputs) inputs.push_back(operand(each, callable, forward));
  const OpId backward = p_.emit("call", inputs, {{"graph", grad.graph}});
  for (const TensorId t : ir().op(backward).outputs) add_value(t);
}

/// Inputs of the gradient graph: a gradient is any value of its type.
TensorId RandomLayers::operand(const ExpectedConnection& each, const Callable& callable, OpId forward) {
  const Graph& graph = ir().graph(callable.graph);
  const auto input = std::ranges::find(graph.inputs, each.fwd_tensor);
  if (input != graph.inputs.end() && !each.is_gradient) {
    return ir().op(forward).inputs[static_cast<std::size_t>(input - graph.inputs.begin())];
  }
  const auto output = std::ranges::find(graph.outputs, each.fwd_tensor);
  POPSR_CHECK(output != graph.outputs.end());
  const TensorId value = ir().op(forward).outputs[static_cast<std::size_t>(output - graph.outputs.begin())];
  return each.is_gradient ? like(value) : value;
}

}  // namespace popsr::test
