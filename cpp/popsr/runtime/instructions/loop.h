// A loop: its body runs `count` times, each time with noise keys of its own.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "popsr/runtime/lowering/lowered_program.h"

namespace popsr {

class Executor;
class PlanBuilder;
struct Instruction;

struct Loop {
  std::vector<Instruction> body;  ///< One iteration.
  std::int64_t count = 0;
  PathId path_end = {};  ///< Paths Instruction::path..path_end-1 lie inside.
};

void build_loop(PlanBuilder& builder, const lowered::Loop& loop, Instruction& instruction);
inline void prepare(Loop&, const Instruction&, Executor&) {}
void execute(Loop& work, const Instruction& instruction, Executor& executor);
std::string describe(const Loop& work, const Instruction& instruction, const Ir& ir);

}  // namespace popsr
