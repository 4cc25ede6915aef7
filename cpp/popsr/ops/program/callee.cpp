#include "popsr/ops/program/callee.h"

#include "popsr/base/error.h"

namespace popsr {

const Graph& callee(const InferContext& context, const Attr<GraphId>& attr) {
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

void check_argument(const InferContext& context, const Graph& graph, std::size_t i, std::size_t first) {
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

void check_carried(const InferContext& context) {
  const Graph& graph = callee(context);
  if (graph.inputs.size() < graph.outputs.size()) {
    raise<GraphError>(
        "{}: graph '{}' has fewer inputs than outputs, got {} and {}, expected an input per output",
        context.name(), graph.name, graph.inputs.size(), graph.outputs.size());
  }
  const std::vector<OutputDef> outputs = outputs_of(context, graph);
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
}

}  // namespace popsr
