#include "popsr/ir/called_graphs.h"

#include "popsr/ir/op_def.h"

namespace popsr {

std::vector<CalledGraph> called_graphs(const Ir& ir, const Op& op) {
  std::vector<CalledGraph> called;
  if (op.def->control == Control::kNone) return called;
  std::uint32_t next = op.def->control == Control::kConditional ? 1 : 0;  // after the condition
  for (const Attribute& attribute : op.attrs) {
    const auto* graph = std::get_if<GraphId>(&attribute);
    if (graph == nullptr) continue;
    const auto inputs = static_cast<std::uint32_t>(ir.graph(*graph).inputs.size());
    called.push_back({*graph, next, next + inputs});
    next += inputs;
  }
  return called;
}

}  // namespace popsr
