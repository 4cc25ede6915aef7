#include "popsr/transform/stochastic_rounding.h"

#include <utility>
#include <vector>

#include "popsr/analysis/popart/popart_analysis.h"
#include "popsr/base/error.h"
#include "popsr/ir/edit/transaction.h"
#include "popsr/ir/op_def.h"
#include "popsr/transform/graph_editor.h"

namespace popsr {

namespace {

bool uses_seeds(const Ir& ir, OpId id) { return rounds(ir, ir.op(id)) && ir.op(id).noise.allow_stochastic; }

/// The ops that need not have the seeds that the rule gives: those since it was given to all, or all.
std::size_t first_undecided(const Ir& ir, std::optional<SeedRule> rule) {
  return ir.decided_seeds().rule == rule ? ir.decided_seeds().ops : 0;
}

}  // namespace

void assign_seeds(Ir& ir, SeedRule rule) {
  Transaction transaction(ir);
  for (std::size_t op = first_undecided(ir, rule); op < ir.num_ops(); ++op) {
    if (uses_seeds(ir, OpId(op))) GraphEditor(ir).set_seeds(OpId(op), rule);
  }
  GraphEditor(ir).note_seeds(rule);
  transaction.commit();
}

void assign_popart_seeds(Ir& ir) {
  const PopartAnalysis facts(ir);
  std::vector<std::pair<OpId, SeedRule>> rules;
  for (const OpId id : ids<OpId>(ir.num_ops())) {
    if (!uses_seeds(ir, id)) continue;
    const OpId whole = ir.op(id).schedule.part_of == kNone ? id : ir.op(id).schedule.part_of;
    rules.emplace_back(id, facts.are_outputs_equal(whole) ? SeedRule::kIdentical : SeedRule::kDiffering);
  }
  Transaction transaction(ir);
  for (const auto& [id, rule] : rules) GraphEditor(ir).set_seeds(id, rule);
  transaction.commit();
}

void clear_seeds(Ir& ir) {
  Transaction transaction(ir);
  for (std::size_t op = first_undecided(ir, std::nullopt); op < ir.num_ops(); ++op) {
    GraphEditor(ir).set_seeds(OpId(op), std::nullopt);
  }
  GraphEditor(ir).note_seeds(std::nullopt);
  transaction.commit();
}

void verify_seeds(const Ir& ir, bool enabled) {
  for (const OpId id : ids<OpId>(ir.num_ops())) {
    const Op& op = ir.op(id);
    const bool expected = enabled && uses_seeds(ir, id);
    if (op.noise.seeds.has_value() == expected) continue;
    raise<GraphError>(
        "{}: op {} seed rule while stochastic rounding is {}, got '{}' made at {}, expected the transform "
        "to run last",
        op.def->name, expected ? "has no" : "has a", enabled ? "on" : "off",
        op.outputs.empty() ? "" : ir.tensor(op.outputs[0]).name,
        ir.locations().to_string(op.origin.location));
  }
}

}  // namespace popsr
