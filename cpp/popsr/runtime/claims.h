// The dynamic oracle: compares what the analysis proved with what a run without sharing really computed.
#pragma once

#include <cstdint>
#include <vector>

#include "popsr/runtime/plan.h"

namespace popsr {

/// Throws ReplicaError naming the op, the tensor, two replicas, the element and both values when a claim of
/// the instruction does not hold. All NaNs of a dtype are one value; -0 differs from +0.
void check_claims(const Ir& ir, const Plan& plan, const Instruction& instruction,
                  const std::vector<std::uint64_t>& iterations);

}  // namespace popsr
