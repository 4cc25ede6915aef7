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
  const std::uint8_t* takes_branch = nullptr;  ///< Flag per replica: nonzero if it takes the branch.
  const ExecutionMask* outer = nullptr;
};

inline ActiveReplicas active_replicas(const ExecutionMask* mask) {
  return mask == nullptr ? ActiveReplicas() : ActiveReplicas(mask->takes_branch);
}

/// Deadlock rule: all members of a group that exchanges values take part, or none. `leaders`: the smallest
/// replica of each replica's group. Throws ReplicaError that names the op, the group and the condition in
/// which its members differ.
void check_groups(const Ir& ir, const Op& collective, std::span<const Replica> leaders,
                  const ExecutionMask& mask);

}  // namespace popsr
