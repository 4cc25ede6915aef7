#include "popsr/runtime/session/profile.h"

#include <span>
#include <variant>

#include "popsr/base/threads/deep_stack.h"

namespace popsr {
namespace {

ProfiledInstruction profiled(const Ir& ir, const Instruction& instruction) {
  const ExecutionCounts& counts = instruction.counts;
  ProfiledInstruction made{describe(ir, instruction), counts.executions, counts.time,
                           counts.executions * instruction.bytes};
  count_ops({&instruction, 1}, [&](const Op* op, const ExecutionCounts& of, std::uint64_t members) {
    made.ops.push_back({op == nullptr ? OpId(kNone) : op->id, of.blocks * members});
  });
  return made;
}

void add(const Ir& ir, std::span<const Instruction> instructions, Profile& profile) {
  for (const Instruction& instruction : instructions) {
    if (std::holds_alternative<Loop>(instruction.work) ||
        std::holds_alternative<Conditional>(instruction.work)) {
      for_each_body(instruction, [&](const auto& body) { add(ir, body, profile); });
    } else if (instruction.counts.executions > 0) {
      profile.instructions.push_back(profiled(ir, instruction));
    }
  }
}

}  // namespace

void add_instructions(const Ir& ir, const Plan& plan, Profile& profile) {
  with_deep_stack([&] { add(ir, plan.instructions(), profile); });
}

}  // namespace popsr
