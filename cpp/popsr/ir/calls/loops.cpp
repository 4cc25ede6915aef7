#include "popsr/ir/calls/loops.h"

#include <algorithm>

#include "popsr/ir/ir.h"

namespace popsr {

bool asks_condition(const Op& op) {
  return op.def->program.control == Control::kRepeat &&
         std::ranges::find(op.def->attrs, kMaxIterations.name, &AttrDef::name) != op.def->attrs.end();
}

std::optional<std::int64_t> counted_iterations(const Op& op) {
  if (op.def->program.control != Control::kRepeat || asks_condition(op)) return std::nullopt;
  return op.get(kCount);
}

const Op* while_loop_of(const Ir& ir, GraphId iteration) {
  for (const OpId id : ir.ops_with_graphs()) {
    const Op& op = ir.op(id);
    if (asks_condition(op) && op.get(kGraph) == iteration) return &op;
  }
  return nullptr;
}

TensorId condition_of(const Ir& ir, const Op& while_loop) {
  const OpId producer = ir.tensor(while_loop.inputs[0]).uses.producer;
  if (producer == kNone || ir.op(producer).def->program.control != Control::kCall)
    return while_loop.inputs[0];
  return ir.graph(ir.op(producer).get(kGraph)).outputs[0];
}

bool asks_first(const Ir& ir, const Op& call) {
  return std::ranges::any_of(ir.ops_with_graphs(), [&](OpId id) {
    const Op& op = ir.op(id);
    return asks_condition(op) && !call.outputs.empty() && op.inputs[0] == call.outputs[0];
  });
}

}  // namespace popsr
