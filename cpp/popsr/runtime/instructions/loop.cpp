#include "popsr/runtime/instructions/loop.h"

#include <fmt/format.h>

#include <optional>

#include "popsr/base/error.h"
#include "popsr/exec/host_io.h"
#include "popsr/ir/op_def.h"
#include "popsr/runtime/execution/executor.h"
#include "popsr/runtime/plan/plan_builder.h"

namespace popsr {
namespace {

/// The first replica that runs the loop and whose condition holds.
std::optional<Replica> first_continuing(const Loop& work, ActiveReplicas active) {
  for (Replica r = 0; r < work.conditions.size(); ++r) {
    if (active(r) && *work.conditions[r] != std::byte{0}) return r;
  }
  return std::nullopt;
}

[[noreturn]] void raise_endless(const Loop& work, const Op& op, const Ir& ir, Replica replica) {
  raise<OutOfRangeError>(
      "{}: the condition still holds on replica {} at {}, got {} iterations, expected an end within "
      "max_iterations={}",
      op.def->name, replica, ir.locations().to_string(op.origin.location), work.count, work.count);
}

}  // namespace

void build_loop(PlanBuilder& builder, const LoweredOp& op, const lowered::Loop& loop,
                Instruction& instruction) {
  Loop& work = instruction.work.emplace<Loop>();
  work.body = builder.build(loop.body);
  work.count = loop.count;
  work.path_end = loop.path_end;
  if (op.in.empty()) return;
  work.conditions = builder.receive_all(op, op.in[0], work.exchange);
}

void execute(Loop& work, const Instruction& instruction, Executor& executor) {
  for (std::int64_t i = 0; i < work.count; ++i) {
    executor.start_iteration(instruction.path, work.path_end, static_cast<std::uint64_t>(i));
    executor.run(work.body);
    if (work.body.empty()) executor.poll(0);
    executor.report(instruction);
    if (work.conditions.empty()) continue;
    executor.exchange(work.exchange);
    if (!first_continuing(work, executor.active())) return;
  }
  if (const std::optional<Replica> replica = first_continuing(work, executor.active())) {
    raise_endless(work, *instruction.op, executor.ir(), *replica);
  }
}

std::string describe(const Loop& work, const Instruction& instruction, const Ir& ir) {
  if (work.conditions.empty()) return fmt::format("repeat {} times", work.count);
  return fmt::format("while %{}", ir.tensor(instruction.op->outputs[0]).name);
}

}  // namespace popsr
