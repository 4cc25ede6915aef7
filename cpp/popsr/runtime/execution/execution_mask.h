// Which replicas run what inside conditionals.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "popsr/ir/eval.h"
#include "popsr/runtime/plan/plan.h"

namespace popsr {

/// A branch that is running and that some replica around it does not take.
struct Branch {
  const Instruction* conditional = nullptr;
  const std::uint8_t* mask = nullptr;  ///< By replica.
  const Branch* outer = nullptr;
};

inline ActiveReplicas active_replicas(const Branch* branch) {
  return branch == nullptr ? ActiveReplicas() : ActiveReplicas(branch->mask);
}

/// Evaluates the condition on each active replica and fills Instruction::branches; returns how many replicas
/// take each branch.
std::array<std::size_t, 2> choose_branches(Instruction& conditional, ActiveReplicas active);

/// The deadlock rule: of each group that exchanges values all members take part or none. Throws ReplicaError
/// naming the op, the group and the condition that parts it.
void check_groups(const Ir& ir, const Instruction& exchange, const Branch& branch);

}  // namespace popsr
