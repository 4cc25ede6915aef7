// Facts of a graph's memory between its ops, read again from what the analysis kept: the facts of each op's
// outputs. One pass over a graph gives the facts of all operands, where a search for the last writer of each
// would need an index of the graph.
#pragma once

#include "popsr/analysis/memory/memory_facts.h"
#include "popsr/analysis/partition_analysis.h"

namespace popsr {

/// Writes to `memory` the facts that the op at position `at` of the context's graph left. A pass starts from
/// PartitionAnalysis::entry_memory.
void replay(const Ir& ir, const Context& context, const Op& op, std::size_t at, MemoryFacts& memory);
void replay(const Ir& ir, const Context& context, const FlatSchedule& schedule, std::size_t at,
            MemoryFacts& memory);

}  // namespace popsr
