// Times everything that is proved of a program, and the same again after one more op.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "popsr/ir/ir.h"

namespace popsr::bench {

/// Prints a line of JSON with the seconds of each round: facts, the check of the order of writes, each lint.
void time_lints(const std::string& name, Ir& ir, int rounds);

/// Prints a line of JSON with the seconds of a whole analysis and, for each round, those of the analysis after
/// one more op of the main graph.
void time_growth(const std::string& name, Ir& ir, int rounds);

}  // namespace popsr::bench
