#include "popsr/effects/loop_depths.h"

#include <algorithm>

#include "popsr/base/threads/deep_stack.h"
#include "popsr/ir/calls/called_graphs.h"
#include "popsr/ir/op_def.h"

namespace popsr {

std::uint32_t LoopDepths::of(GraphId graph) const {
  if (const auto it = memo_.find(graph); it != memo_.end()) return it->second;
  return memo_[graph] = with_deep_stack([this, graph] { return find(graph); });
}

std::uint32_t LoopDepths::find(GraphId graph) const {
  std::uint32_t deepest = 0;
  for (const OpId id : ir_.graph(graph).ops) {
    const Op& op = ir_.op(id);
    if (op.def->program.control == Control::kNone) continue;
    const std::uint32_t own = op.def->program.control == Control::kRepeat ? 1 : 0;
    for (const CalledGraph& called : called_graphs(ir_, op)) {
      deepest = std::max(deepest, own + of(called.graph));
    }
  }
  return deepest;
}

}  // namespace popsr
