// Instruction for a loop: its body runs `count` times, or while a condition holds, each time with noise
// keys of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "popsr/runtime/lowering/lowered_program.h"
#include "popsr/runtime/ranks/block_exchange.h"

namespace popsr {

class Executor;
class PlanBuilder;
struct Instruction;

struct Loop {
  std::vector<Instruction> body;  ///< Instructions of one iteration.
  std::int64_t count = 0;         ///< Number of iterations; the maximum if there are conditions.
  PathId path_end = {};           ///< End of the paths inside the loop, Instruction::path..path_end-1.
  /// Address of each replica's condition; another iteration follows while one of them holds. Empty: the
  /// loop counts.
  std::vector<const std::byte*> conditions = {};
  BlockExchange exchange = {};  ///< Messages of the conditions, which all ranks see.

  /// Iterations that are known before the loop runs.
  std::int64_t known() const { return conditions.empty() ? count : 1; }
};

void build_loop(PlanBuilder& builder, const LoweredOp& op, const lowered::Loop& loop,
                Instruction& instruction);
inline void prepare(Loop&, const Instruction&, Executor&) {}
void execute(Loop& work, const Instruction& instruction, Executor& executor);
std::string describe(const Loop& work, const Instruction& instruction, const Ir& ir);

}  // namespace popsr
