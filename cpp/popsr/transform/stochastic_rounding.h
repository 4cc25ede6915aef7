// Gives every op that rounds its seed rule. Runs last: an op added later has none, and the verifier says so.
#pragma once

#include "popsr/ir/op.h"

namespace popsr {

class Ir;

/// Sets OpNoise::seeds on every op that rounds and allows it; idempotent. Ops that have another rule get this
/// one.
void assign_seeds(Ir& ir, SeedRule rule);
/// The same as the reference does it: kIdentical where mode "popart" takes all outputs of the op for equal on
/// all replicas, kDiffering elsewhere. Of a merged op all outputs of all parts count. GraphError, before
/// anything is set, for an op in a graph that this mode does not look at.
void assign_popart_seeds(Ir& ir);
/// Removes all seed rules.
void clear_seeds(Ir& ir);
/// Throws GraphError naming the first op that rounds without a seed rule (enabled) or has one (not enabled).
void verify_seeds(const Ir& ir, bool enabled);

}  // namespace popsr
