// Masks of the replicas that run inside conditionals.
#pragma once

#include <cstdint>
#include <span>

#include "popsr/exec/host_io.h"

namespace popsr {

class Ir;
struct Op;

/// A branch that is running and that some replica around it does not take.
struct ExecutionMask {
  const Op* conditional = nullptr;
  const std::uint8_t* takes_branch = nullptr;  ///< By replica.
  const ExecutionMask* outer = nullptr;
};

inline ActiveReplicas active_replicas(const ExecutionMask* mask) {
  return mask == nullptr ? ActiveReplicas() : ActiveReplicas(mask->takes_branch);
}

/// The deadlock rule: of each group that exchanges values all members take part or none. `leaders`: the
/// smallest replica of each replica's group. Throws ReplicaError naming the op, the group and the condition
/// in which its members differ.
void check_groups(const Ir& ir, const Op& collective, std::span<const Replica> leaders,
                  const ExecutionMask& mask);

}  // namespace popsr
