// Messages that a rank has moved for the ops of a plan.
#pragma once

#include <map>

#include "popsr/ir/ir.h"
#include "popsr/runtime/plan/plan.h"
#include "popsr/runtime/ranks/traffic.h"

namespace popsr {

/// By op.
using RankTraffic = std::map<OpId, Traffic>;

/// Adds what the instructions of a plan moved so far.
void add_traffic(const Plan& plan, RankTraffic& total);

}  // namespace popsr
