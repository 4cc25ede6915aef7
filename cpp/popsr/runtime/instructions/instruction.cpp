#include "popsr/runtime/instructions/instruction.h"

#include <algorithm>

#include "popsr/base/overloaded.h"
#include "popsr/exec/host_io.h"
#include "popsr/ir/op_def.h"
#include "popsr/runtime/execution/executor.h"

namespace popsr {
namespace {

/// True for kinds that represent ops of the program, without instructions of their own.
template <class Work>
concept RunsOps =
    std::same_as<Work, KernelRun> || std::same_as<Work, CollectiveCall> || std::same_as<Work, FusedProduct> ||
    std::same_as<Work, FusedAccumulation> || std::same_as<Work, CopyBlocks>;

void count_streams(const Op& op, std::int64_t times, IdVector<StreamId, std::int64_t>& reads) {
  for (const Attribute& value : op.attrs) {
    if (const auto* stream = std::get_if<StreamId>(&value)) reads[*stream] += times;
  }
}

}  // namespace

std::string describe(const Ir& ir, const Instruction& instruction) {
  return std::visit([&](const auto& work) { return describe(work, instruction, ir); }, instruction.work);
}

void prepare(Instruction& instruction, Executor& executor) {
  std::visit([&](auto& work) { prepare(work, instruction, executor); }, instruction.work);
  if (instruction.checks.finite) instruction.checks.finite->read_operands(executor.active());
}

void execute(Instruction& instruction, Executor& executor) {
  std::visit([&](auto& work) { execute(work, instruction, executor); }, instruction.work);
}

std::int64_t active_blocks(const Instruction& instruction, ActiveReplicas active) {
  if (active.all()) return instruction.blocks;
  if (const auto* merged = std::get_if<Merged>(&instruction.work)) {
    std::int64_t blocks = 0;
    for (const Instruction& part : merged->parts) blocks += active_blocks(part, active);
    return blocks;
  }
  return std::ranges::count_if(instruction.replicas, active);
}

void count_streams(std::span<const Instruction> instructions, std::int64_t times,
                   IdVector<StreamId, std::int64_t>& reads) {
  for (const Instruction& instruction : instructions) {
    std::visit(Overloaded{[&](const Loop& loop) { count_streams(loop.body, times * loop.known(), reads); },
                          [&](const Merged& merged) { count_streams(merged.parts, times, reads); },
                          [](const Sliced&) {},
                          [&](const Conditional& conditional) {
                            IdVector<StreamId, std::int64_t> other = reads;
                            count_streams(conditional.then_body, times, reads);
                            count_streams(conditional.else_body, times, other);
                            std::ranges::transform(reads, other, reads.begin(), std::ranges::max);
                          },
                          [&](const RunsOps auto&) {
                            if (instruction.op) count_streams(*instruction.op, times, reads);
                          }},
               instruction.work);
  }
}

void count_ops(std::span<const Instruction> instructions, const OpCounter& count) {
  for (const Instruction& instruction : instructions) {
    const ExecutionCounts& counts = instruction.counts;
    const auto count_op = [&] { count(instruction.op, counts, 1); };
    std::visit(Overloaded{[&](const Loop& loop) { count_ops(loop.body, count); },
                          [&](const Conditional& conditional) {
                            count_ops(conditional.then_body, count);
                            count_ops(conditional.else_body, count);
                          },
                          [&](const Merged& merged) {
                            for (const Instruction& part : merged.parts) {
                              const auto* const fused = std::get_if<FusedProduct>(&part.work);
                              if (fused) count(fused->product, part.counts, fused->blocks.front().lhs.size());
                            }
                            count_op();
                          },
                          [&](const Sliced& sliced) { count_ops(sliced.parts, count); },
                          [&](const FusedAccumulation& fused) {
                            const std::uint64_t members = fused.blocks.front().start.size();
                            for (const BoundStep& step : fused.steps) {
                              if (step.op != step.product) count(step.op, counts, members);
                              count(step.product, counts, members);
                            }
                            if (!fused.ends_in_step) count_op();
                          },
                          [&](const FusedProduct& fused) {
                            if (instruction.op != fused.product) count_op();
                            // A reduction has one product for each member.
                            count(fused.product, counts, fused.blocks.front().lhs.size());
                          },
                          [&](const RunsOps auto&) { count_op(); }},
               instruction.work);
  }
}

}  // namespace popsr
