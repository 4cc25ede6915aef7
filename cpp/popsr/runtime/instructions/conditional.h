// A conditional: each replica takes one of two branches, by its own condition.
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
  std::vector<const std::byte*> conditions = {};        ///< By replica.
  BlockExchange exchange = {};                          ///< Of conditions, which all ranks see.
  std::array<std::vector<std::uint8_t>, 2> masks = {};  ///< Replicas that took then and else this time.
};

void build_conditional(PlanBuilder& builder, const LoweredOp& op, const lowered::Conditional& conditional,
                       Instruction& instruction);
inline void prepare(Conditional&, const Instruction&, Executor&) {}
void execute(Conditional& work, const Instruction& instruction, Executor& executor);
std::string describe(const Conditional& work, const Instruction& instruction, const Ir& ir);

}  // namespace popsr
