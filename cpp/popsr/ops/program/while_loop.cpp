// while_loop: a loop that goes on while the first value that it carries holds on some replica that runs it.
// Each replica has a loop of its own when the graph is a conditional on that value, as the graphs are that
// popsr.ops.while_loop makes.
#include "popsr/base/error.h"
#include "popsr/ir/calls/loops.h"
#include "popsr/ops/program/callee.h"
#include "popsr/ops/registry.h"

namespace popsr {
namespace {

/// The first carried value says whether there is another iteration.
std::vector<OutputDef> infer_while_loop(const InferContext& context) {
  const std::int64_t most = context.find(kMaxIterations).value_or(1);
  if (most < 1) {
    raise<AttributeValueError>("{}: max_iterations is not positive, got {}, expected max_iterations >= 1",
                               context.name(), most);
  }
  check_carried(context);
  const Graph& graph = callee(context);
  if (context.op.inputs.size() != graph.inputs.size()) {
    raise<GraphError>("{}: wrong number of inputs for graph '{}', got {}, expected {}", context.name(),
                      graph.name, context.op.inputs.size(), graph.inputs.size());
  }
  for (std::size_t i = 0; i < graph.inputs.size(); ++i) check_argument(context, graph, i);
  std::vector<OutputDef> outputs = outputs_of(context, graph);
  if (outputs.empty() || outputs[0].type.dtype != DType::kBool || num_elements(outputs[0].type.shape) != 1) {
    raise<DTypeError>("{}: output 0 of graph '{}' is not a condition, got {}, expected bool of one element",
                      context.name(), graph.name, outputs.empty() ? "none" : to_string(outputs[0].type));
  }
  return outputs;
}

}  // namespace

std::vector<OpDef> while_loop_ops() {
  return {{.name = "while_loop",
           .inputs = {{.name = "inputs", .variadic = true}},
           .attrs = {required(kGraph), optional(kMaxIterations)},
           .infer = infer_while_loop,
           .grad = {.missing = NoGrad::kThrows},
           .program = {.control = Control::kRepeat}}};
}

}  // namespace popsr
