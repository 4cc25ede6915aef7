#include "popsr/runtime/instructions/merged_run.h"

#include <algorithm>

#include "popsr/base/cost.h"
#include "popsr/ir/op_def.h"
#include "popsr/runtime/execution/executor.h"
#include "popsr/runtime/plan/plan_builder.h"

namespace popsr {
namespace {

/// The host serves one at a time, so only collectives between replicas can share a pass.
bool is_between_replicas(const Instruction& part) {
  return std::holds_alternative<CollectiveCall>(part.work) && !part.op->inputs.empty() &&
         !part.op->outputs.empty();
}

}  // namespace

void build_merged(PlanBuilder& builder, const lowered::Merged& merged, Instruction& instruction) {
  Merged& work = instruction.work.emplace<Merged>();
  work.parts = builder.build(merged.parts);
  std::int64_t shared = 0;
  for (std::size_t p = 0; p < work.parts.size(); ++p) {
    const Instruction& part = work.parts[p];
    instruction.blocks += part.blocks;
    std::vector<Claim>& claims = instruction.checks.claims;
    claims.insert(claims.end(), part.checks.claims.begin(), part.checks.claims.end());
    const auto bytes = static_cast<std::int64_t>(builder.bytes_moved(merged.parts[p]));
    // Big values keep all threads busy alone.
    if (!is_between_replicas(part) || worth_threads(kValueBytes, bytes)) continue;
    work.together.push_back(p);
    shared += bytes;
  }
  if (!worth_threads(kMergedBytes, shared)) work.together.clear();
}

void prepare(Merged& work, const Instruction&, Executor& executor) {
  for (Instruction& part : work.parts) prepare(part, executor);
}

void execute(Merged& work, const Instruction&, Executor& executor) {
  const std::vector<std::size_t>& together = work.together;
  const int threads =
      static_cast<int>(std::min(together.size(), static_cast<std::size_t>(executor.pool().threads())));
  executor.pool().run(threads, [&](int thread) {
    for (auto t = static_cast<std::size_t>(thread); t < together.size();
         t += static_cast<std::size_t>(threads)) {
      const Instruction& part = work.parts[together[t]];
      execute(std::get<CollectiveCall>(part.work), part, executor, executor.serial());
    }
  });
  auto done = together.begin();
  for (std::size_t p = 0; p < work.parts.size(); ++p) {
    if (done != together.end() && *done == p) {
      ++done;
    } else {
      execute(work.parts[p], executor);
    }
  }
  for (Instruction& part : work.parts) executor.finish(part);
}

std::string describe(const Merged&, const Instruction& instruction, const Ir&) {
  return std::string(instruction.op->def->name);
}

}  // namespace popsr
