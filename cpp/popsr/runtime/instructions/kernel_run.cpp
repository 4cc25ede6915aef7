#include "popsr/runtime/instructions/kernel_run.h"

#include <fmt/format.h>

#include <algorithm>

#include "popsr/base/error.h"
#include "popsr/base/threads/thread_pool.h"
#include "popsr/exec/block_kernel.h"
#include "popsr/exec/host_io.h"
#include "popsr/exec/invalid_labels.h"
#include "popsr/ir/op_def.h"
#include "popsr/runtime/execution/executor.h"
#include "popsr/runtime/plan/plan_builder.h"

namespace popsr {
namespace {

/// Stages an operand that is overwritten, in fewer blocks than the op has, since another output has more: all
/// blocks read it, so it is written when the last has run.
void stage_shared(PlanBuilder& builder, const LoweredOp& op, PartitionId exec, KernelRun& work,
                  Instruction& instruction) {
  if (op.out.size() < 2 || work.write_back) return;  // to write back twice changes nothing
  const LocalBlocks& table = builder.blocks();
  for (std::size_t k = 0; k < op.out.size(); ++k) {
    const PartitionId storage = builder.storage(op.out[k]);
    const bool overwrites = std::ranges::find(op.in, op.out[k]) != op.in.end();
    if (!overwrites || table.num_blocks(storage) >= table.num_blocks(exec)) continue;
    const std::size_t nbytes = builder.placement(op.out[k]).nbytes;
    const Slab& slab = work.staging.emplace_back(
        builder.make_staging(nbytes * static_cast<std::size_t>(table.num_blocks(exec))));
    for (BoundRun& run : work.runs) {
      run.out[k] = slab.data() + static_cast<std::size_t>(run.first) * nbytes;
      run.out_stride[k] = static_cast<std::ptrdiff_t>(nbytes);
    }
    for (const Replica replica : table.representatives(storage)) {
      const std::byte* const from = slab.data() + table.labels(exec)[replica] * nbytes;
      builder.add_copy(op, instruction.copies, {builder.block(op.out[k], replica), from, nbytes, replica});
    }
  }
}

void run_blocks(KernelRun& work, const BoundRun& run, std::int64_t begin, std::int64_t end,
                InvalidLabels* invalid_labels, ThreadPool& pool) {
  if (invalid_labels != nullptr) invalid_labels->start_run(run.first + begin);
  if (begin == 0) {
    work.kernel({run.in.data(), run.in_stride.data(), run.out.data(), run.out_stride.data(), end,
                 run.noise.data(), pool, 0, invalid_labels});
    return;
  }
  BoundRun& part = *work.part;
  for (std::size_t i = 0; i < run.in.size(); ++i) part.in[i] = run.in[i] + begin * run.in_stride[i];
  for (std::size_t i = 0; i < run.out.size(); ++i) {
    part.out[i] = run.out[i] + begin * run.out_stride[i];
    part.noise[i] = run.noise[i] == nullptr ? nullptr : run.noise[i] + begin;
  }
  work.kernel({part.in.data(), run.in_stride.data(), part.out.data(), run.out_stride.data(), end - begin,
               part.noise.data(), pool, 0, invalid_labels});
}

}  // namespace

void build_kernel_run(PlanBuilder& builder, const LoweredOp& op, Instruction& instruction) {
  const PartitionId exec = builder.execution(op);
  KernelRun& work = instruction.work.emplace<KernelRun>();
  work.write_back = op.is<lowered::WriteBack>();
  const EvalFn eval = work.write_back ? op.op->def->memory.write_back : op.op->def->kernel.eval;
  POPSR_CHECK(eval != nullptr);
  EvalSpec spec = builder.spec(*op.op);
  spec.clamp_scales = builder.options().clamp_scales;
  if (const auto* const plain = op.as<lowered::Plain>()) {
    spec.reads = plain->reads;
    spec.writes = plain->writes;
  }
  work.kernel = eval(spec);
  instruction.blocks = builder.blocks().num_blocks(exec);
  work.runs = builder.bind_runs(op, exec);
  stage_shared(builder, op, exec, work, instruction);
  work.noise = builder.noise_keys(op);
  for (BoundRun& run : work.runs) bind_noise(work.noise, run);
  if (op.exec) work.part = std::make_unique<BoundRun>(work.runs.front());
  if (op.op->def->numerics.labels) {
    instruction.checks.invalid_labels =
        std::make_unique<InvalidLabels>(builder.blocks().representatives(exec));
  }
  for (const BufferId id : op.out) builder.fill_storage(op, id, exec, instruction.copies);
}

void prepare(KernelRun& work, const Instruction& instruction, Executor& executor) {
  executor.derive_keys(instruction, work.noise);
}

void execute(KernelRun& work, const Instruction& instruction, Executor& executor) {
  InvalidLabels* const invalid_labels = invalid_labels_of(instruction);
  const ActiveReplicas active = executor.active();
  for (const BoundRun& run : work.runs) {
    if (active.all()) {
      run_blocks(work, run, 0, run.blocks, invalid_labels, executor.pool());
      continue;
    }
    const Replica* replicas = instruction.replicas.data() + run.first;
    for (std::int64_t begin = 0; begin < run.blocks; ++begin) {
      if (!active(replicas[begin])) continue;
      std::int64_t end = begin + 1;
      while (end < run.blocks && active(replicas[end])) ++end;
      run_blocks(work, run, begin, end, invalid_labels, executor.pool());
      begin = end;  // that one is inactive, or there is none
    }
  }
}

std::string describe(const KernelRun& work, const Instruction& instruction, const Ir&) {
  return fmt::format("{}{}", instruction.op->def->name, work.write_back ? " (write back)" : "");
}

}  // namespace popsr
