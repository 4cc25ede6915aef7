#include "popsr/effects/input_uses.h"

#include <unordered_map>

#include "popsr/base/deep_stack.h"
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
  std::unordered_map<TensorId, InputUse*> by_input;
  for (std::size_t i = 0; i < uses.size(); ++i) {
    by_input.emplace(graph.inputs[i], &uses[i]);
    uses[i].in_parts = ir_.tensor(graph.inputs[i]).memory.viewed == Viewed::kPartly;
  }
  const auto in_parts = [&](TensorId tensor) {
    for_each_root(ir_, tensor, [&by_input](TensorId root) {
      if (const auto it = by_input.find(root); it != by_input.end()) it->second->in_parts = true;
    });
  };
  const auto decides = [&](TensorId tensor) {
    const auto it = by_input.find(ir_.tensor(tensor).memory.storage);
    if (it != by_input.end()) it->second->decides = true;
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
