// Sets the seed rule of every op that rounds. Runs last: an op added later has none, and the verifier
// reports it.
#pragma once

#include "popsr/ir/op.h"

namespace popsr {

class Ir;

/// Sets OpNoise::seeds on every op that rounds and allows it, replacing other rules; idempotent.
void assign_seeds(Ir& ir, SeedRule rule);
/// Sets seed rules as the reference does: kIdentical if mode "popart" considers all outputs of the op equal
/// on all replicas, kDiffering otherwise. For a merged op all outputs of all parts count. Throws
/// GraphError, before anything is set, for an op in a graph that this mode does not walk.
void assign_popart_seeds(Ir& ir);
/// Removes all seed rules.
void clear_seeds(Ir& ir);
/// Throws GraphError naming the first op that rounds without a seed rule (enabled) or has one (not enabled).
void verify_seeds(const Ir& ir, bool enabled);

}  // namespace popsr
