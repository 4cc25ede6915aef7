#include "popsr/effects/input_uses.h"

#include <vector>

#include "popsr/base/threads/deep_stack.h"
#include "popsr/effects/memory.h"
#include "popsr/ir/calls/called_graphs.h"
#include "popsr/ir/op_def.h"

namespace popsr {

const std::vector<InputUse>& InputUses::of(GraphId id) const {
  if (const auto it = memo_.find(id); it != memo_.end()) return it->second;
  return memo_[id] = with_deep_stack([this, id] { return find(id); });
}

std::vector<InputUse> InputUses::find(GraphId id) const {
  const Graph& graph = ir_.graph(id);
  std::vector<InputUse> uses(graph.inputs.size());
  std::vector<InputUse*> by_slot(graph.tensors.size());  // of the inputs, by Ir::storage_index
  for (std::size_t i = 0; i < uses.size(); ++i) {
    by_slot[ir_.storage_index(graph.inputs[i])] = &uses[i];
    uses[i].in_parts = ir_.tensor(graph.inputs[i]).memory.viewed == Viewed::kPartly;
  }
  const auto use_of = [&](TensorId tensor) {
    const std::uint32_t slot = ir_.storage_index(tensor);
    return slot == kNone ? nullptr : by_slot[slot];
  };
  const auto in_parts = [&](TensorId tensor) {
    for_each_root(ir_, tensor, [&use_of](TensorId root) {
      if (InputUse* const use = use_of(root)) use->in_parts = true;
    });
  };
  const auto decides = [&](TensorId tensor) {
    if (InputUse* const use = use_of(tensor)) use->decides = true;
  };
  for (const TensorId output : graph.outputs) in_parts(output);
  for (const OpId op_id : graph.ops) {
    const Op& op = ir_.op(op_id);
    if (op.def->program.control == Control::kNone) continue;
    if (op.def->program.control == Control::kConditional) decides(op.inputs[0]);
    for (const CalledGraph& called : called_graphs(ir_, op)) {
      const std::vector<InputUse>& inner = of(called.graph);
      for (std::uint32_t i = called.first; i < called.end; ++i) {
        if (inner[i - called.first].in_parts) in_parts(op.inputs[i]);
        if (inner[i - called.first].decides) decides(op.inputs[i]);
      }
    }
  }
  return uses;
}

}  // namespace popsr
