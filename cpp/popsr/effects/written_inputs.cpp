#include "popsr/effects/written_inputs.h"

#include <algorithm>
#include <unordered_set>

#include "popsr/base/threads/deep_stack.h"
#include "popsr/effects/memory.h"
#include "popsr/ir/calls/called_graphs.h"
#include "popsr/ir/op_def.h"

namespace popsr {

const std::vector<bool>& WrittenInputs::of(GraphId id) {
  if (const auto it = memo_->find(id); it != memo_->end()) return it->second;
  return (*memo_)[id] = with_deep_stack([this, id] { return find(id); });
}

std::vector<bool> WrittenInputs::find(GraphId id) {
  const Graph& graph = ir_.graph(id);
  std::unordered_set<TensorId> written;
  const auto write = [&](TensorId tensor) {
    for_each_root(ir_, tensor, [&written](TensorId root) { written.insert(root); });
  };
  for (const OpId op_id : single_ops(ir_, id)) {
    const Op& op = ir_.op(op_id);
    for (const Effect& effect : effects_of(op)) write(op.inputs[effect.input]);
    for (const std::uint32_t i : op.call.modified) {
      if (by_call(op, i)) write(op.inputs[i]);
    }
  }
  std::vector<bool> result;
  for (const TensorId input : graph.inputs) result.push_back(written.contains(input));
  return result;
}

bool WrittenInputs::by_call(const Op& op, std::uint32_t i) {
  if (std::ranges::find(op.call.modified, i) == op.call.modified.end()) return false;
  if (!runs_body(op)) return false;
  // A loop hands the last value of a carried input back.
  if (op.def->program.control == Control::kRepeat && i < op.outputs.size()) return true;
  for (const CalledGraph& called : called_graphs(ir_, op)) {
    if (i >= called.first && i < called.end) return of(called.graph)[i - called.first];
  }
  return false;  // the condition
}

}  // namespace popsr
