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

}  // namespace popsr
