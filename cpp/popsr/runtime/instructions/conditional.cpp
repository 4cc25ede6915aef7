#include "popsr/runtime/instructions/conditional.h"

#include <fmt/format.h>

#include "popsr/exec/host_io.h"
#include "popsr/runtime/execution/executor.h"
#include "popsr/runtime/plan/plan_builder.h"

namespace popsr {
namespace {

/// Evaluates the condition on each active replica and fills the masks; returns how many replicas take each
/// branch.
std::array<std::size_t, 2> choose_branches(Conditional& work, ActiveReplicas active) {
  std::array<std::size_t, 2> taken = {};
  for (Replica r = 0; r < work.conditions.size(); ++r) {
    const bool runs = active(r);
    const bool holds = runs && *work.conditions[r] != std::byte{0};
    work.masks[0][r] = holds ? 1 : 0;
    work.masks[1][r] = runs && !holds ? 1 : 0;
    taken[holds ? 0 : 1] += runs ? 1 : 0;
  }
  return taken;
}

}  // namespace

void build_conditional(PlanBuilder& builder, const LoweredOp& op, const lowered::Conditional& conditional,
                       Instruction& instruction) {
  Conditional& work = instruction.work.emplace<Conditional>();
  work.conditions = builder.receive_all(op, op.in[0], work.exchange);
  for (std::vector<std::uint8_t>& mask : work.masks) mask.resize(work.conditions.size());
  work.then_body = builder.build(conditional.then_body);
  work.else_body = builder.build(conditional.else_body);
}

void execute(Conditional& work, const Instruction& instruction, Executor& executor) {
  executor.exchange(work.exchange);
  const std::array<std::size_t, 2> taken = choose_branches(work, executor.active());
  for (std::size_t b = 0; b < taken.size(); ++b) {
    if (taken[b] == 0) continue;
    std::vector<Instruction>& body = b == 0 ? work.then_body : work.else_body;
    if (taken[1 - b] == 0) {
      executor.run(body);  // all that run the conditional take this branch
    } else {
      executor.run_masked(body, *instruction.op, work.masks[b]);
    }
  }
}

std::string describe(const Conditional&, const Instruction& instruction, const Ir& ir) {
  return fmt::format("if %{}", ir.tensor(instruction.op->inputs[0]).name);
}

}  // namespace popsr
