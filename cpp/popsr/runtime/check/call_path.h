// The call path of an instruction: calls, loops and branches around it.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "popsr/analysis/explain/dataflow.h"
#include "popsr/runtime/plan/plan.h"

namespace popsr {

/// The frame that a path leads to, and words for it: " in call of graph 'f' at m.py:3, iteration 2".
/// `iterations`: those that are running.
std::pair<FrameId, std::string> place_of(Dataflow& flow, const Plan& plan, PathId path,
                                         const IdVector<PathId, std::uint64_t>& iterations);

}  // namespace popsr
