// Size of a graph with all calls inlined: a few graphs that call each other can mean billions of ops.
#pragma once

#include <cstddef>
#include <string_view>

#include "popsr/ir/ids.h"

namespace popsr {

class Ir;

/// Largest number of inlined ops that a session makes a plan for, at some 3 kB each, or that autodiff visits.
inline constexpr std::size_t kMaxInlinedOps = std::size_t{1} << 22;

/// Throws GraphError if the graph has more than kMaxInlinedOps ops, with all calls inlined and loops as one
/// pass. Visits each graph once. `what` and `fix` begin and end the text: "session: the plan", "use
/// `repeat`".
void check_inlined_size(const Ir& ir, GraphId graph, std::string_view what, std::string_view fix);

}  // namespace popsr
