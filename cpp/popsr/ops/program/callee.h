// Called graphs: checks of arguments, types of results.
#pragma once

#include <vector>

#include "popsr/ir/op_def.h"

namespace popsr {

/// Graph in an attribute. Throws GraphError if it cannot be called: the main graph, or the graph of the op.
const Graph& callee(const InferContext& context, const Attr<GraphId>& attr = kGraph);

/// Checks, without broadcasting and casting, that input `first` + `i` of the op has the dtype and shape of
/// input `i` of the graph. Meta shapes are equal where both sides have one: gradients do not carry it
/// through every op.
void check_argument(const InferContext& context, const Graph& graph, std::size_t i, std::size_t first = 0);

/// Outputs of a call of the graph.
std::vector<OutputDef> outputs_of(const InferContext& context, const Graph& graph);

/// Checks the carried values of a loop: output i of the graph becomes input i of the next iteration, the
/// remaining inputs are the same in every iteration.
void check_carried(const InferContext& context);

}  // namespace popsr
