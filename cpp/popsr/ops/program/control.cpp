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

std::vector<OutputDef> infer_repeat(const InferContext& context) {
  const std::int64_t count = context.get(kCount);
  if (count < 0)
    raise<AttributeValueError>("{}: negative count, got {}, expected count >= 0", context.name(), count);
  check_carried(context);
  return infer_call(context);
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
