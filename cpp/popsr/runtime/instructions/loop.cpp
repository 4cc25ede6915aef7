#include "popsr/runtime/instructions/loop.h"

#include <fmt/format.h>

#include "popsr/runtime/execution/executor.h"
#include "popsr/runtime/plan/plan_builder.h"

namespace popsr {

void build_loop(PlanBuilder& builder, const lowered::Loop& loop, Instruction& instruction) {
  Loop& work = instruction.work.emplace<Loop>();
  work.body = builder.build(loop.body);
  work.count = loop.count;
  work.path_end = loop.path_end;
}

void execute(Loop& work, const Instruction& instruction, Executor& executor) {
  for (std::int64_t i = 0; i < work.count; ++i) {
    executor.start_iteration(instruction.path, work.path_end, static_cast<std::uint64_t>(i));
    executor.run(work.body);
    if (work.body.empty()) executor.poll(false);
    executor.report(instruction);
  }
}

std::string describe(const Loop& work, const Instruction&, const Ir&) {
  return fmt::format("repeat {} times", work.count);
}

}  // namespace popsr
