// Gives every op that rounds its seed rule. Runs last: an op added later has none, and the verifier says so.
#pragma once

#include "popsr/ir/ir.h"

namespace popsr {

/// Sets Op::seeds on every op that rounds and allows it; idempotent.
void assign_seeds(Ir& ir, SeedRule rule);
/// Removes all seed rules.
void clear_seeds(Ir& ir);
/// Throws GraphError naming the first op that rounds without a seed rule (enabled) or has one (not enabled).
void verify_seeds(const Ir& ir, bool enabled);

}  // namespace popsr
