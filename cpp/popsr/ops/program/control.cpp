// call and repeat: ops that run a graph. Runtime, analysis and autodiff treat them through
// OpDef::program.control.
#include "popsr/base/error.h"
#include "popsr/ops/program/callee.h"
#include "popsr/ops/registry.h"

namespace popsr {
namespace {

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
  };
}

}  // namespace popsr
