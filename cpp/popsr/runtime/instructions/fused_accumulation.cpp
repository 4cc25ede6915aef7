#include "popsr/runtime/instructions/fused_accumulation.h"

#include <fmt/format.h>

#include "popsr/exec/block_kernel.h"
#include "popsr/ir/op_def.h"
#include "popsr/runtime/execution/executor.h"
#include "popsr/runtime/plan/plan_builder.h"

namespace popsr {
namespace {

BoundSteps bind_block(const PlanBuilder& builder, const LoweredOp& op,
                      const lowered::FusedAccumulation& fused, Replica replica,
                      std::span<const Replica> members) {
  BoundSteps bound;
  bound.out = builder.block(op.out[0], replica);
  for (const Replica member : members) {
    bound.start.push_back(op.in[0] == kNone ? nullptr : builder.block(op.in[0], member));
    for (const lowered::AccumulationStep& step : fused.steps) {
      bound.lhs.push_back(builder.block(step.product.lhs, member));
      bound.rhs.push_back(builder.block(step.product.rhs, member));
      std::vector<const std::byte*>& in = bound.in.emplace_back();
      for (const BufferId id : step.in) in.push_back(id == kNone ? nullptr : builder.block(id, member));
    }
  }
  return bound;
}

}  // namespace

void build_fused_accumulation(PlanBuilder& builder, const LoweredOp& op,
                              const lowered::FusedAccumulation& fused, Instruction& instruction) {
  const PartitionId exec = builder.execution(op);
  FusedAccumulation& work = instruction.work.emplace<FusedAccumulation>();
  const Op& product = *fused.steps.back().product.product;
  work.kernel = product.def->kernel.product(builder.spec(product));
  work.divisor = fused.fusion.divisor;
  work.ends_in_step = fused.fusion.target.has_value();
  instruction.blocks = builder.blocks().num_blocks(exec);
  for (const lowered::AccumulationStep& step : fused.steps) {
    work.steps.push_back({step.op, step.product.product, step.product.fusion});
  }
  const ReplicaGrouping group = group_of(builder.ir(), fused.fusion);
  for (const Replica& replica : builder.blocks().representatives(exec)) {
    const auto members = fused.fusion.target ? std::span(&replica, 1) : group.members(replica);
    work.blocks.push_back(bind_block(builder, op, fused, replica, members));
  }
  work.factors.resize(work.blocks.front().in.size());
  builder.fill_storage(op, op.out[0], exec, instruction.copies);
}

void execute(FusedAccumulation& work, const Instruction&, Executor& executor) {
  const std::size_t steps = work.steps.size();
  for (const BoundSteps& bound : work.blocks) {
    for (std::size_t p = 0; p < bound.in.size(); ++p) {
      const bool as_member_before = p >= steps && bound.in[p] == bound.in[p - steps];
      work.factors[p] = as_member_before ? work.factors[p - steps]
                                         : work.steps[p % steps].fusion.factors(bound.in[p].data());
    }
    work.kernel({.lhs = bound.lhs.data(),
                 .rhs = bound.rhs.data(),
                 .terms = static_cast<std::int64_t>(bound.start.size()),
                 .out = bound.out,
                 .factors = work.factors.data(),
                 .divisor = work.divisor,
                 .pool = executor.pool(),
                 .steps = static_cast<std::int64_t>(steps),
                 .start = bound.start.data()});
  }
}

/// "4 x matmul+accumulate_", "4 x matmul+accumulate_+replicated_all_reduce_"
std::string describe(const FusedAccumulation& work, const Instruction& instruction, const Ir&) {
  const BoundStep& last = work.steps.back();
  std::string text =
      fmt::format("{} x {}+{}", work.steps.size(), last.product->def->name, last.op->def->name);
  if (!work.ends_in_step) text += fmt::format("+{}", instruction.op->def->name);
  return text;
}

}  // namespace popsr
