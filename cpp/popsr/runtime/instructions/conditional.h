// Instruction for a conditional: each replica takes one of two branches, by its own condition.
#pragma once

#include <array>
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

struct Conditional {
  std::vector<Instruction> then_body, else_body;
  std::vector<const std::byte*> conditions = {};  ///< Address of each replica's condition.
  BlockExchange exchange = {};                    ///< Messages of the conditions, which all ranks see.
  /// Masks of the replicas that took the then and the else branch in this execution.
  std::array<std::vector<std::uint8_t>, 2> masks = {};
};

void build_conditional(PlanBuilder& builder, const LoweredOp& op, const lowered::Conditional& conditional,
                       Instruction& instruction);
inline void prepare(Conditional&, const Instruction&, Executor&) {}
void execute(Conditional& work, const Instruction& instruction, Executor& executor);
std::string describe(const Conditional& work, const Instruction& instruction, const Ir& ir);

}  // namespace popsr
