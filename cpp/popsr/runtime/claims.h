// The dynamic oracle: compares what the analysis proved with what a run without sharing really computed.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "popsr/runtime/plan.h"

namespace popsr {

/// C-order index of the first element in which two blocks differ. All NaNs of a dtype are one value; -0
/// differs from +0.
std::optional<std::int64_t> first_difference(const std::byte* a, const std::byte* b, const TensorType& type);

/// Throws ReplicaError naming the op, the tensor, two replicas, the element and both values when a claim of
/// the instruction does not hold among the active replicas.
void check_claims(const Ir& ir, const Plan& plan, const Instruction& instruction,
                  const std::vector<std::uint64_t>& iterations, ActiveReplicas active);

}  // namespace popsr
