// Texts of programs, for people.
#pragma once

#include <string>

#include "popsr/ir/ids.h"

namespace popsr {

class Ir;

/// Text of an op in one line: "%mul_out f32[4] = mul(%x, %w)  # model.py:12".
std::string print_op(const Ir& ir, OpId op);
/// Text of a graph with its inputs, ops and outputs; names are relative to the graph.
std::string print_graph(const Ir& ir, GraphId graph);
std::string print_ir(const Ir& ir);
/// Text of everything that an Ir holds except its epoch, including the next numbers, with a line for each
/// graph, tensor, op, stream and remote buffer. Equal texts mean equal programs.
std::string print_state(const Ir& ir);

}  // namespace popsr
