#include "popsr/runtime/plan/plan_program.h"

#include "popsr/kernels/loader.h"
#include "popsr/runtime/lowering/lowering.h"
#include "popsr/runtime/lowering/rewrites.h"
#include "popsr/runtime/plan/layout.h"
#include "popsr/runtime/ranks/rank_chain.h"

namespace popsr {

LoweredProgram plan_program(const PartitionAnalysis& facts, const PlanOptions& options) {
  facts.check_fresh();
  const Ir& ir = facts.ir();
  LoweredProgram program = lower(facts);
  const kernels::KernelTable& kernels = kernels::kernel_table();
  if (options.share) share_buffers(program);
  if (options.fuse) {
    accumulate_sums(ir, kernels, program);
    fuse_products(ir, kernels, program, options.dedup, options.ranks);
    read_through_views(ir, kernels, program);
  }
  if (options.fuse && options.unroll) unroll_accumulations(ir, program);
  if (options.fuse) write_carried(ir, program);
  choose_storage(facts, program, options.dedup);
  if (options.fuse) {
    if (fuse_accumulations(ir, kernels, program, options.dedup, options.ranks)) {
      choose_storage(facts, program, options.dedup);
    }
    fuse_slices(ir, program);
  }
  return program;
}

PartitionId execution_of(PartitionTable& table, const LoweredOp& op, bool dedup) {
  if (!dedup) return table.bottom();
  PartitionId exec = op.exec.value_or(table.top());
  for (const PartitionId fact : op.facts) exec = table.meet(exec, fact);
  return exec;
}

std::optional<ReductionChain> chain_for(const Ir& ir, const LocalBlocks& blocks,
                                        const LoweredProgram& program, const LoweredOp& op,
                                        const PlanOptions& options) {
  if (options.check_floats) return std::nullopt;  // operands are looked at before an op runs
  const PartitionId exec = execution_of(ir.partitions(), op, options.dedup);
  return chain_of(ir, kernels::kernel_table(), blocks, program, op, exec, options.chain);
}

}  // namespace popsr
