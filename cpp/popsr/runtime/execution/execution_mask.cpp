#include "popsr/runtime/execution/execution_mask.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

#include "popsr/base/error.h"
#include "popsr/ir/op_def.h"

namespace popsr {
namespace {

/// The outermost condition that sends one of two replicas another way.
const Op& parting_conditional(const Branch& innermost, Replica a, Replica b) {
  const Branch* parting = &innermost;
  for (const Branch* at = &innermost; at != nullptr; at = at->outer) {
    if (at->mask[a] != at->mask[b]) parting = at;
  }
  return *parting->conditional->op;
}

[[noreturn]] void raise_parted(const Ir& ir, const Instruction& exchange, const Branch& branch,
                               Replica replica) {
  const Op& conditional = parting_conditional(branch, exchange.leaders[replica], replica);
  std::vector<Replica> group, present;
  for (Replica r = 0; r < exchange.leaders.size(); ++r) {
    if (exchange.leaders[r] != exchange.leaders[replica]) continue;
    group.push_back(r);
    if (branch.mask[r] != 0) present.push_back(r);
  }
  const Tensor& condition = ir.tensor(conditional.inputs[0]);
  raise<ReplicaError>(
      "{}: replicas of one group disagree about taking part, got {} of group {{{}}} at {} because of "
      "condition '{}' "
      "at {}, expected all or none",
      exchange.op->def->name, fmt::format("{{{}}}", fmt::join(present, ",")), fmt::join(group, ","),
      ir.locations().to_string(exchange.op->location), condition.name,
      ir.locations().to_string(conditional.location));
}

}  // namespace

std::array<std::size_t, 2> choose_branches(Instruction& conditional, ActiveReplicas active) {
  std::array<std::size_t, 2> taken = {};
  for (Replica r = 0; r < conditional.conditions.size(); ++r) {
    const bool runs = active(r);
    const bool holds = runs && *conditional.conditions[r] != std::byte{0};
    conditional.branches[0][r] = holds ? 1 : 0;
    conditional.branches[1][r] = runs && !holds ? 1 : 0;
    taken[holds ? 0 : 1] += runs ? 1 : 0;
  }
  return taken;
}

void check_groups(const Ir& ir, const Instruction& exchange, const Branch& branch) {
  for (Replica r = 0; r < exchange.leaders.size(); ++r) {
    if (branch.mask[r] != branch.mask[exchange.leaders[r]]) raise_parted(ir, exchange, branch, r);
  }
}

}  // namespace popsr
