// Instruction for ops that run at once, as one op of the program: their collectives share a pass of the
// threads.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "popsr/runtime/lowering/lowered_program.h"

namespace popsr {

class Executor;
class PlanBuilder;
struct Instruction;

struct Merged {
  /// Instructions of the parts. None reads what another writes, so they need no order.
  std::vector<Instruction> parts;
  /// Indices of the collectives in `parts` that share one pass of the threads.
  std::vector<std::size_t> together = {};
};

void build_merged(PlanBuilder& builder, const lowered::Merged& merged, Instruction& instruction);
void prepare(Merged& work, const Instruction& instruction, Executor& executor);
void execute(Merged& work, const Instruction& instruction, Executor& executor);
std::string describe(const Merged& work, const Instruction& instruction, const Ir& ir);

}  // namespace popsr
