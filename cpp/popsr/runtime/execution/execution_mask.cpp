#include "popsr/runtime/execution/execution_mask.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

#include "popsr/base/error.h"
#include "popsr/ir/calls/loops.h"
#include "popsr/ir/op_def.h"

namespace popsr {
namespace {

/// The outermost condition that sends one of two replicas another way.
const Op& diverging_conditional(const ExecutionMask& innermost, Replica a, Replica b) {
  const ExecutionMask* diverging = &innermost;
  for (const ExecutionMask* at = &innermost; at != nullptr; at = at->outer) {
    if (at->takes_branch[a] != at->takes_branch[b]) diverging = at;
  }
  return *diverging->conditional;
}

[[noreturn]] void raise_diverged(const Ir& ir, const Op& collective, std::span<const Replica> leaders,
                                 const ExecutionMask& mask, Replica replica) {
  const Op& conditional = diverging_conditional(mask, leaders[replica], replica);
  std::vector<Replica> group, present;
  for (Replica r = 0; r < leaders.size(); ++r) {
    if (leaders[r] != leaders[replica]) continue;
    group.push_back(r);
    if (mask.takes_branch[r] != 0) present.push_back(r);
  }
  const Tensor& condition = ir.tensor(condition_source(ir, conditional).condition);
  raise<ReplicaError>(
      "{}: replicas of one group disagree about taking part, got {} of group {{{}}} at {} because of "
      "condition '{}' at {}, expected all or none",
      collective.def->name, fmt::format("{{{}}}", fmt::join(present, ",")), fmt::join(group, ","),
      ir.locations().to_string(collective.origin.location), condition.name,
      ir.locations().to_string(conditional.origin.location));
}

}  // namespace

void check_groups(const Ir& ir, const Op& collective, std::span<const Replica> leaders,
                  const ExecutionMask& mask) {
  for (Replica r = 0; r < leaders.size(); ++r) {
    if (mask.takes_branch[r] != mask.takes_branch[leaders[r]])
      raise_diverged(ir, collective, leaders, mask, r);
  }
}

}  // namespace popsr
