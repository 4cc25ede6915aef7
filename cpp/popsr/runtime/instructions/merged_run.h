// Ops that run at once, as one of the program: their collectives share a pass of the threads.
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
  std::vector<Instruction> parts;          ///< None reads what another writes, so they need no order.
  std::vector<std::size_t> together = {};  ///< Collectives among them that share one pass of the threads.
};

void build_merged(PlanBuilder& builder, const lowered::Merged& merged, Instruction& instruction);
void prepare(Merged& work, const Instruction& instruction, Executor& executor);
void execute(Merged& work, const Instruction& instruction, Executor& executor);
std::string describe(const Merged& work, const Instruction& instruction, const Ir& ir);

}  // namespace popsr
