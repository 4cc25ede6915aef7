// Call path of an instruction: calls, loops and branches around it.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "popsr/analysis/explain/dataflow.h"
#include "popsr/runtime/plan/plan.h"

namespace popsr {

/// Returns the frame that a path leads to, and a description such as " in call of graph 'f' at m.py:3,
/// iteration 2". `iterations`: current iteration of each loop.
std::pair<FrameId, std::string> place_of(Dataflow& flow, const Plan& plan, PathId path,
                                         const IdVector<PathId, std::uint64_t>& iterations);

}  // namespace popsr
