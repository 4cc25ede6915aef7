// L12: ops that modify and use one tensor in an order that only the program's text gives.
#include <fmt/format.h>

#include "popsr/analysis/lint/lints.h"
#include "popsr/effects/verify.h"
#include "popsr/ir/op_def.h"

namespace popsr {

std::map<GraphId, WriteOrder> lint_order(Explainer& explainer, std::vector<Lint>& lints) {
  std::map<GraphId, WriteOrder> orders;
  const PartitionAnalysis& facts = explainer.flow().facts();
  const Ir& ir = facts.ir();
  for (std::uint32_t g = 0; g < ir.num_graphs(); ++g) {
    if (facts.contexts(GraphId{g}).empty()) continue;
    std::vector<UnorderedPair> pairs;
    orders.emplace(GraphId{g}, WriteOrder(ir, GraphId{g}, facts.schedule(GraphId{g}), pairs));
    for (const UnorderedWrites& found : unordered_writes(pairs)) {
      const Op& writer = ir.op(found.writer);
      const Op& other = ir.op(found.other);
      lints.push_back(
          {.code = 12,
           .op = writer.id,
           .tensor = found.tensor,
           .location = writer.origin.location,
           .cost = found.pairs,
           .unit = "pairs",
           .text = fmt::format(
               "{} modifies '{}', which {} at {} {}: neither data nor popsr.in_sequence() orders "
               "them, so they run in program order, which PopXL does not promise; make them inside "
               "popsr.in_sequence()",
               writer.def->name, ir.tensor(found.tensor).name, other.def->name,
               place_text(ir, other.origin.location), found.other_writes ? "modifies too" : "reads")});
    }
  }
  return orders;
}

}  // namespace popsr
