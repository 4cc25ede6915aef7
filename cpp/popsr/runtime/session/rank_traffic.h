// Messages that a rank has moved for the ops of a plan.
#pragma once

#include <map>

#include "popsr/ir/ir.h"
#include "popsr/runtime/plan/plan.h"
#include "popsr/runtime/ranks/traffic.h"

namespace popsr {

/// Messages and bytes that this rank has moved, by op.
using RankTraffic = std::map<OpId, Traffic>;

/// Adds the messages that the instructions of a plan have moved so far.
void add_traffic(const Plan& plan, RankTraffic& total);

}  // namespace popsr
