// Wrong analyses: registries in which one field of one op's definition is changed. A fuzz that lets one of
// them live is too weak.
//
// Rules of the solver itself for conditionals, loops and runs are in no field, so no mutant ignores a
// condition. Two come close: a loop defined as a call is analysed in one pass, and ops that run graphs can be
// defined as ops that the analysis does not look into.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "popsr/ir/op_def.h"

namespace popsr::test {

struct Mutant {
  std::string_view op;
  std::string_view what;
  void (*change)(OpDef&);
  bool quick = false;  ///< In the normal run too.
};

std::span<const Mutant> mutants();
std::shared_ptr<const Registry> mutated(const Mutant& mutant);

}  // namespace popsr::test
