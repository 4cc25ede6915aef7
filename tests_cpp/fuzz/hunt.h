// Looks for a random program that shows what is wrong with a mutant.
#pragma once

#include <memory>

#include "fuzz/facts_check.h"
#include "fuzz/mutants.h"

namespace popsr::test {

struct Kill {
  int programs = 0;  ///< Until one of them was found wrong; 0: none was.
  Recipe recipe = {};
};

/// True if the program is made, and its facts are found wrong.
bool convicts(const Recipe& recipe, const std::shared_ptr<const Registry>& registry,
              SolverFault fault = SolverFault::kNone);
/// Looks at so many programs at most.
Kill hunt(const Mutant& mutant, int programs);

}  // namespace popsr::test
