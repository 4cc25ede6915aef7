// call, repeat and conditional: ops that run graphs. Runtime, analysis and autodiff treat them through
// OpDef::control.
#include "popsr/base/error.h"
#include "popsr/ops/registry.h"

namespace popsr {
namespace {

constexpr Attr<GraphId> kThenBranch{"then_branch"};
constexpr Attr<GraphId> kElseBranch{"else_branch"};

const Graph& callee(const InferContext& context, const Attr<GraphId>& attr = kGraph) {
  const GraphId id = context.get(attr);
  if (id.value >= context.ir.num_graphs()) {
    raise<GraphError>("{}: unknown graph, got number {}, expected one below {}", context.name(), id.value,
                      context.ir.num_graphs());
  }
  const Graph& graph = context.ir.graph(id);
  if (id == context.op.graph || id == kMainGraph) {
    raise<GraphError>("{}: {} cannot be called here, got the {} graph, expected another graph",
                      context.name(), in_words(graph), id == kMainGraph ? "main" : "calling");
  }
  return graph;
}

/// No broadcasting or casting at the boundary: dtype and shape are those of the graph's input, which is the
/// op's input `first` + `i`. Shards are of the same shape as far as both sides say: gradients do not carry it
/// through every op.
void check_argument(const InferContext& context, const Graph& graph, std::size_t i, std::size_t first = 0) {
  const Tensor& want = context.ir.tensor(graph.inputs[i]);
  const Tensor& got = context.tensor(first + i);
  if (got.type.dtype != want.type.dtype) {
    raise<DTypeError>("{}: dtype of input '{}' differs, got {} '{}', expected {}", context.name(), want.name,
                      to_string(got.type), got.name, to_string(want.type));
  }
  if (got.type.shape != want.type.shape) {
    raise<ShapeError>("{}: shape of input '{}' differs, got {} '{}', expected {}", context.name(), want.name,
                      to_string(got.type), got.name, to_string(want.type));
  }
  if (got.meta_shape != want.meta_shape && !got.meta_shape.empty() && !want.meta_shape.empty()) {
    raise<ShapeError>("{}: meta shape of input '{}' differs, got {} '{}' with {}, expected {} with {}",
                      context.name(), want.name, to_string(got.type), got.name, to_string(got.meta_shape),
                      to_string(want.type), to_string(want.meta_shape));
  }
}

std::vector<OutputDef> outputs_of(const InferContext& context, const Graph& graph) {
  std::vector<OutputDef> outputs;
  outputs.reserve(graph.outputs.size());
  for (const TensorId id : graph.outputs) {
    const Tensor& output = context.ir.tensor(id);
    outputs.push_back({output.type, output.meta_shape});
  }
  return outputs;
}

std::vector<OutputDef> infer_call(const InferContext& context) {
  const Graph& graph = callee(context);
  if (context.op.inputs.size() != graph.inputs.size()) {
    raise<GraphError>("{}: wrong number of inputs for graph '{}', got {}, expected {}", context.name(),
                      graph.name, context.op.inputs.size(), graph.inputs.size());
  }
  for (std::size_t i = 0; i < graph.inputs.size(); ++i) check_argument(context, graph, i);
  return outputs_of(context, graph);
}

/// Output i becomes input i of the next iteration; the remaining inputs are the same in every iteration.
std::vector<OutputDef> infer_repeat(const InferContext& context) {
  const std::int64_t count = context.get(kCount);
  if (count < 0)
    raise<AttributeValueError>("{}: negative count, got {}, expected count >= 0", context.name(), count);
  const Graph& graph = callee(context);
  if (graph.inputs.size() < graph.outputs.size()) {
    raise<GraphError>(
        "{}: graph '{}' has fewer inputs than outputs, got {} and {}, expected an input per output",
        context.name(), graph.name, graph.inputs.size(), graph.outputs.size());
  }
  std::vector<OutputDef> outputs = infer_call(context);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const Tensor& carried = context.ir.tensor(graph.inputs[i]);
    const std::string& output = context.ir.tensor(graph.outputs[i]).name;
    if (outputs[i].type.dtype != carried.type.dtype) {
      raise<DTypeError>("{}: loop-carried dtypes differ, got {} from output '{}', expected {} of input '{}'",
                        context.name(), to_string(outputs[i].type), output, to_string(carried.type),
                        carried.name);
    }
    if (outputs[i].type.shape != carried.type.shape || outputs[i].meta_shape != carried.meta_shape) {
      raise<ShapeError>("{}: loop-carried shapes differ, got {} from output '{}', expected {} of input '{}'",
                        context.name(), to_string(outputs[i].type), output, to_string(carried.type),
                        carried.name);
    }
  }
  return outputs;
}

/// Whatever branch runs, the same comes out. Shards are of the same shape as far as both sides say.
void check_same_outputs(const InferContext& context, const Graph& then_branch, const Graph& else_branch) {
  if (then_branch.outputs.size() != else_branch.outputs.size()) {
    raise<GraphError>(
        "{}: branches have different numbers of outputs, got {} of '{}' and {} of '{}', expected "
        "the same number",
        context.name(), then_branch.outputs.size(), then_branch.name, else_branch.outputs.size(),
        else_branch.name);
  }
  for (std::size_t k = 0; k < then_branch.outputs.size(); ++k) {
    const Tensor& a = context.ir.tensor(then_branch.outputs[k]);
    const Tensor& b = context.ir.tensor(else_branch.outputs[k]);
    if (a.type.dtype != b.type.dtype) {
      raise<DTypeError>("{}: dtypes of output {} differ, got {} '{}' and {} '{}', expected the same dtype",
                        context.name(), k, to_string(a.type), a.name, to_string(b.type), b.name);
    }
    if (a.type.shape != b.type.shape) {
      raise<ShapeError>("{}: shapes of output {} differ, got {} '{}' and {} '{}', expected the same shape",
                        context.name(), k, to_string(a.type), a.name, to_string(b.type), b.name);
    }
    if (!a.meta_shape.empty() && !b.meta_shape.empty() && a.meta_shape != b.meta_shape) {
      raise<ShapeError>("{}: output {} is a shard of different shapes, got {} '{}' and {} '{}', expected one",
                        context.name(), k, to_string(a.meta_shape), a.name, to_string(b.meta_shape), b.name);
    }
  }
}

/// Inputs: the condition, those of the then branch, those of the else branch.
std::vector<OutputDef> infer_conditional(const InferContext& context) {
  if (num_elements(context.type(0).shape) != 1) {
    raise<ShapeError>("{}: cond is not one value, got {} '{}', expected one element", context.name(),
                      to_string(context.type(0)), context.tensor(0).name);
  }
  const Graph& then_branch = callee(context, kThenBranch);
  const Graph& else_branch = callee(context, kElseBranch);
  const std::size_t expected = 1 + then_branch.inputs.size() + else_branch.inputs.size();
  if (context.op.inputs.size() != expected) {
    raise<GraphError>("{}: wrong number of inputs for graphs '{}' and '{}', got {}, expected {}",
                      context.name(), then_branch.name, else_branch.name, context.op.inputs.size() - 1,
                      expected - 1);
  }
  for (std::size_t i = 0; i < then_branch.inputs.size(); ++i) check_argument(context, then_branch, i, 1);
  for (std::size_t i = 0; i < else_branch.inputs.size(); ++i) {
    check_argument(context, else_branch, i, 1 + then_branch.inputs.size());
  }
  check_same_outputs(context, then_branch, else_branch);
  std::vector<OutputDef> outputs = outputs_of(context, then_branch);
  for (std::size_t k = 0; k < outputs.size(); ++k) {
    if (outputs[k].meta_shape.empty()) {
      outputs[k].meta_shape = context.ir.tensor(else_branch.outputs[k]).meta_shape;
    }
  }
  return outputs;
}

}  // namespace

std::vector<OpDef> control_ops() {
  return {
      {.name = "call",
       .inputs = {{.name = "inputs", .variadic = true}},
       .attrs = {required(kGraph)},
       .infer = infer_call,
       .program = {.control = Control::kCall}},
      {.name = "repeat",
       .inputs = {{.name = "inputs", .variadic = true}},
       .attrs = {required(kGraph), required(kCount)},
       .infer = infer_repeat,
       .program = {.control = Control::kRepeat}},
      {.name = "conditional",
       .inputs = {{.name = "cond", .dtypes = {DType::kBool}}, {.name = "inputs", .variadic = true}},
       .attrs = {required(kThenBranch), required(kElseBranch)},
       .infer = infer_conditional,
       .program = {.control = Control::kConditional}},
  };
}

}  // namespace popsr
