// Flattens a program into one list: calls are inlined (aliasing what is passed by reference or never
// written), loops keep a body, conditionals a body per branch. Each op carries the facts of its context.
#pragma once

#include "popsr/analysis/partition_analysis.h"
#include "popsr/runtime/lowering/lowered_program.h"

namespace popsr {

LoweredProgram lower(const PartitionAnalysis& facts);

}  // namespace popsr
