#include "popsr/ir/calls/loops.h"

#include <algorithm>

#include "popsr/ir/ir.h"

namespace popsr {

bool is_while_loop(const Op& op) {
  return op.def->program.control == Control::kRepeat &&
         std::ranges::find(op.def->attrs, kMaxIterations.name, &AttrDef::name) != op.def->attrs.end();
}

std::optional<std::int64_t> counted_iterations(const Op& op) {
  if (op.def->program.control != Control::kRepeat || is_while_loop(op)) return std::nullopt;
  return op.get(kCount);
}

ConditionSource condition_source(const Ir& ir, const Op& conditional) {
  for (const OpId id : ir.ops_with_graphs()) {
    const Op& op = ir.op(id);
    if (!is_while_loop(op) || op.get(kGraph) != conditional.graph) continue;
    const OpId producer = ir.tensor(op.inputs[0]).uses.producer;
    const bool called = producer != kNone && ir.op(producer).def->program.control == Control::kCall;
    return {&op, called ? ir.graph(ir.op(producer).get(kGraph)).outputs[0] : op.inputs[0]};
  }
  return {&conditional, conditional.inputs[0]};
}

bool is_first_condition(const Ir& ir, const Op& call) {
  return std::ranges::any_of(ir.ops_with_graphs(), [&](OpId id) {
    const Op& op = ir.op(id);
    return is_while_loop(op) && !call.outputs.empty() && op.inputs[0] == call.outputs[0];
  });
}

}  // namespace popsr
