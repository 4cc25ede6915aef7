// Wrong analyses: registries in which one field of one op's definition is changed, and rules of the solver
// that are wrong (SolverFault). A fuzz that lets one of them live is too weak.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "popsr/analysis/solver/solver_fault.h"
#include "popsr/ir/op_def.h"

namespace popsr::test {

struct Mutant {
  std::string_view op;
  std::string_view what;
  void (*change)(OpDef&) = nullptr;
  bool quick = false;  ///< True if the normal run includes it.
  SolverFault fault = SolverFault::kNone;
};

std::span<const Mutant> mutants();
std::shared_ptr<const Registry> mutated(const Mutant& mutant);

}  // namespace popsr::test
