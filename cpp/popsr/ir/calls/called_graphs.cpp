#include "popsr/ir/calls/called_graphs.h"

#include "popsr/base/error.h"
#include "popsr/ir/calls/loops.h"
#include "popsr/ir/op_def.h"

namespace popsr {

std::vector<CalledGraph> called_graphs(const Ir& ir, const Op& op) {
  std::vector<CalledGraph> called;
  if (op.def->program.control == Control::kNone) return called;
  std::uint32_t next = op.def->program.control == Control::kConditional ? 1 : 0;  // after the condition
  for (const Attribute& attribute : op.attrs) {
    const auto* graph = std::get_if<GraphId>(&attribute);
    if (graph == nullptr) continue;
    const auto inputs = static_cast<std::uint32_t>(ir.graph(*graph).inputs.size());
    called.push_back({*graph, next, next + inputs});
    next += inputs;
  }
  return called;
}

bool runs_body(const Op& op) { return counted_iterations(op) != 0; }

void check_depth(std::string_view op, std::string_view graph, std::uint32_t depth) {
  constexpr std::uint32_t kMaxDepth = 200;
  if (depth < kMaxDepth) return;
  raise<GraphError>("{}: calls are nested too deeply, got graph '{}' of depth {}, expected less than {}", op,
                    graph, depth, kMaxDepth);
}

}  // namespace popsr
