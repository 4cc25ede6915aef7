#include "popsr/runtime/instructions/copy_blocks.h"

#include <cstring>

#include "popsr/base/cost.h"
#include "popsr/base/threads/thread_pool.h"
#include "popsr/exec/host_io.h"
#include "popsr/runtime/execution/executor.h"
#include "popsr/runtime/plan/plan_builder.h"

namespace popsr {

void copy_blocks(const std::vector<BlockCopy>& copies, ActiveReplicas active, ThreadPool& pool) {
  for (const BlockCopy& copy : copies) {
    if (!active(copy.replica)) continue;
    if (!worth_threads(kValueBytes, static_cast<std::int64_t>(copy.nbytes))) {
      std::memcpy(copy.to, copy.from, copy.nbytes);
      continue;
    }
    const auto parts = static_cast<std::size_t>(pool.threads());
    pool.run(pool.threads(), [&copy, parts](int part) {
      const std::size_t begin = copy.nbytes * static_cast<std::size_t>(part) / parts;
      const std::size_t end = copy.nbytes * (static_cast<std::size_t>(part) + 1) / parts;
      std::memcpy(copy.to + begin, copy.from + begin, end - begin);
    });
  }
}

void build_copy_blocks(PlanBuilder& builder, const LoweredOp& op, Instruction& instruction) {
  CopyBlocks& work = instruction.work.emplace<CopyBlocks>();
  const std::span<const Replica> replicas = builder.blocks().representatives(builder.storage(op.out[0]));
  instruction.blocks = static_cast<std::int64_t>(replicas.size());
  if (op.exec) instruction.replicas.assign(replicas.begin(), replicas.end());
  const std::size_t nbytes = builder.placement(op.out[0]).nbytes;
  for (const Replica replica : replicas) {
    builder.add_copy(op, work.copies,
                     {builder.block(op.out[0], replica), builder.block(op.in[0], replica), nbytes, replica});
  }
}

void execute(const CopyBlocks& work, const Instruction&, Executor& executor) {
  copy_blocks(work.copies, executor.active(), executor.pool());
}

std::string describe(const CopyBlocks&, const Instruction&, const Ir&) { return "copy"; }

}  // namespace popsr
