// Text of programs, for people.
#pragma once

#include <string>

#include "popsr/ir/ids.h"

namespace popsr {

class Ir;

/// One line: "%mul_out f32[4] = mul(%x, %w)  # model.py:12".
std::string print_op(const Ir& ir, OpId op);
/// The graph with its inputs, ops and outputs; names are those inside the graph.
std::string print_graph(const Ir& ir, GraphId graph);
std::string print_ir(const Ir& ir);
/// Everything that an Ir holds but its epoch, with the numbers that come next, for comparing two states of
/// it: equal texts mean equal programs. A line for each graph, tensor, op, stream and remote buffer.
std::string print_state(const Ir& ir);

}  // namespace popsr
