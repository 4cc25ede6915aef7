// The size of a graph with all calls inlined: a few graphs that call each other can mean billions of ops.
#pragma once

#include <cstddef>
#include <string_view>

#include "popsr/ir/ids.h"

namespace popsr {

class Ir;

/// That a session makes a plan for, at some 3 kB each, or autodiff looks through.
inline constexpr std::size_t kMaxInlinedOps = std::size_t{1} << 22;

/// Throws GraphError when the graph has more ops, with all calls inlined and loops as one pass. Looks once at
/// each graph. `what` and `fix` begin and end the text: "session: the plan", "use `repeat`".
void check_inlined_size(const Ir& ir, GraphId graph, std::string_view what, std::string_view fix);

}  // namespace popsr
