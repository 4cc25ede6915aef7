// call and repeat: ops that hold a graph. Runtime, analysis and autodiff treat them through OpDef::control.
#include "popsr/base/error.h"
#include "popsr/ops/registry.h"

namespace popsr {
namespace {

const Graph& callee(const InferContext& context) {
  const GraphId id = context.op.attr<GraphId>("graph");
  if (id.value >= context.ir.num_graphs()) {
    raise<GraphError>("{}: unknown graph, got number {}, expected one below {}", context.name(), id.value,
                      context.ir.num_graphs());
  }
  const Graph& graph = context.ir.graph(id);
  if (id == context.op.graph || id == kMainGraph) {
    raise<GraphError>("{}: graph '{}' cannot be called here, got the {} graph, expected another graph",
                      context.name(), graph.name, id == kMainGraph ? "main" : "calling");
  }
  return graph;
}

/// No broadcasting or casting at the boundary: dtype and shape are those of the graph's input. Shards are of
/// the same shape as far as both sides say: gradients do not carry it through every op.
void check_argument(const InferContext& context, const Graph& graph, std::size_t i) {
  const Tensor& want = context.ir.tensor(graph.inputs[i]);
  const Tensor& got = context.tensor(i);
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

std::vector<OutputDef> infer_call(const InferContext& context) {
  const Graph& graph = callee(context);
  if (context.op.inputs.size() != graph.inputs.size()) {
    raise<GraphError>("{}: wrong number of inputs for graph '{}', got {}, expected {}", context.name(),
                      graph.name, context.op.inputs.size(), graph.inputs.size());
  }
  for (std::size_t i = 0; i < graph.inputs.size(); ++i) check_argument(context, graph, i);
  std::vector<OutputDef> outputs;
  outputs.reserve(graph.outputs.size());
  for (const TensorId id : graph.outputs) {
    const Tensor& output = context.ir.tensor(id);
    outputs.push_back({output.type, output.meta_shape});
  }
  return outputs;
}

/// Output i becomes input i of the next iteration; the remaining inputs are the same in every iteration.
std::vector<OutputDef> infer_repeat(const InferContext& context) {
  const auto count = context.op.attr<std::int64_t>("count");
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

}  // namespace

std::vector<OpDef> control_ops() {
  return {
      {.name = "call",
       .inputs = {{.name = "inputs", .variadic = true}},
       .attrs = {required("graph", AttrType::kGraph)},
       .infer = infer_call,
       .control = Control::kCall},
      {.name = "repeat",
       .inputs = {{.name = "inputs", .variadic = true}},
       .attrs = {required("graph", AttrType::kGraph), required("count", AttrType::kInt)},
       .infer = infer_repeat,
       .control = Control::kRepeat},
  };
}

}  // namespace popsr
