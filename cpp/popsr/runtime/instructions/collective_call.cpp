#include "popsr/runtime/instructions/collective_call.h"

#include <algorithm>

#include "popsr/base/threads/thread_pool.h"
#include "popsr/exec/collective_kernel.h"
#include "popsr/exec/invalid_labels.h"
#include "popsr/ir/op_def.h"
#include "popsr/runtime/execution/executor.h"
#include "popsr/runtime/plan/plan_builder.h"

namespace popsr {
namespace {

/// True where an in-place result would overwrite operands that another block of the op still reads.
bool overwrites_operands(const PlanBuilder& builder, const LoweredOp& op, PartitionId exec) {
  if (op.op->def->memory.effects.empty()) return false;
  // A block that holds whole groups reads nothing that others write, since storage is never coarser than
  // blocks. Members are blocks of their own without dedup, where replicas may diverge, and when their seeds
  // differ.
  PartitionTable& table = builder.table();
  const std::optional<ReplicaGrouping> groups = collective_groups(builder.ir(), *op.op);
  return groups && !table.refines(groups->partition(table), exec);
}

/// Stages results that may not overwrite operands at once, and blocks without a constant stride between them.
void bind_outputs(PlanBuilder& builder, const LoweredOp& op, PartitionId exec, CollectiveCall& work,
                  std::vector<BlockCopy>& copies) {
  const std::vector<BoundRun> runs = builder.bind_runs(op, exec);
  const bool staged = runs.size() != 1 || overwrites_operands(builder, op, exec);
  const std::span<const Replica> replicas = builder.blocks().representatives(exec);
  for (std::size_t k = 0; k < op.out.size(); ++k) {
    if (!staged) {
      work.run.out.push_back(runs[0].out[k]);
      work.run.out_stride.push_back(runs[0].out_stride[k]);
      continue;
    }
    const std::size_t nbytes = builder.placement(op.out[k]).nbytes;
    const Slab& slab = work.staging.emplace_back(builder.make_staging(nbytes * replicas.size()));
    work.run.out.push_back(slab.data());
    work.run.out_stride.push_back(static_cast<std::ptrdiff_t>(nbytes));
    for (std::size_t b = 0; b < replicas.size(); ++b) {
      builder.add_copy(
          op, copies, {builder.block(op.out[k], replicas[b]), slab.data() + b * nbytes, nbytes, replicas[b]});
    }
  }
}

/// The groups with members of this rank, ascending: all ranks take them in this order.
std::vector<ChainGroup> chain_groups(const PlanBuilder& builder, const LoweredOp& op, PartitionId exec,
                                     const BoundRun& run) {
  const ReplicaGrouping groups = group_of(builder.ir(), *op.op);
  const RankMap& ranks = builder.blocks().ranks();
  std::vector<ChainGroup> found;
  for (std::int64_t g = 0; g < groups.num_groups(); ++g) {
    const std::span<const Replica> members = groups.group(g);
    ChainGroup group{.first = members.front()};
    for (const Replica member : members) {
      if (!ranks.owns(member)) continue;
      group.members.push_back(builder.block(op.in[0], member));
      const std::size_t block = builder.blocks().labels(exec)[member];
      std::byte* const out = run.out[0] + static_cast<std::ptrdiff_t>(block) * run.out_stride[0];
      if (group.out.empty()) group.block = block;
      if (std::ranges::find(group.out, out) == group.out.end()) group.out.push_back(out);
    }
    if (group.members.empty()) continue;
    const std::vector<std::int64_t> owners = chain_ranks(members, ranks);
    const auto here = std::ranges::find(owners, ranks.rank);
    group.position = here - owners.begin();
    group.last = static_cast<std::int64_t>(owners.size()) - 1;
    if (here != owners.begin()) group.before = *(here - 1);
    if (here + 1 != owners.end()) group.after = *(here + 1);
    found.push_back(std::move(group));
  }
  return found;
}

std::unique_ptr<RankChain> make_chain(PlanBuilder& builder, const LoweredOp& op, PartitionId exec,
                                      const BoundRun& run) {
  std::optional<ReductionChain> kernel = builder.chain(op);
  if (!kernel) return nullptr;
  auto chain = std::make_unique<RankChain>();
  chain->kernel = std::move(*kernel);
  chain->groups = chain_groups(builder, op, exec, run);
  chain->elements = builder.elements(op.in[0]);
  chain->chunk = std::min(builder.options().chain.chunk_elements, chain->elements);
  chain->size = size_of(builder.ir().tensor(op.op->outputs[0]).type.dtype);
  const std::size_t bytes = static_cast<std::size_t>(chain->chunk) * chain->kernel.state_size;
  for (int i = 0; i < 2; ++i) chain->states.push_back(builder.make_staging(bytes));
  return chain;
}

}  // namespace

void build_collective_call(PlanBuilder& builder, const LoweredOp& op, Instruction& instruction) {
  const PartitionId exec = builder.execution(op);
  const std::span<const Replica> replicas = builder.blocks().representatives(exec);
  CollectiveCall& work = instruction.work.emplace<CollectiveCall>();
  instruction.blocks = static_cast<std::int64_t>(replicas.size());
  work.run.blocks = instruction.blocks;
  CollectiveSpec spec{builder.spec(*op.op), {replicas.begin(), replicas.end()}, {}};
  std::vector<std::vector<std::uint32_t>> labels;  // kernels keep copies of what they need
  labels.reserve(op.in.size());
  for (const BufferId id : op.in) {
    const bool is_given = id != kNone;
    spec.in_labels.push_back(labels.emplace_back(is_given ? builder.receive(op, id, work.exchange)
                                                          : std::vector<std::uint32_t>()));
    work.run.in.push_back(is_given ? builder.placement(id).base : nullptr);
    work.run.in_stride.push_back(is_given ? static_cast<std::ptrdiff_t>(builder.placement(id).nbytes) : 0);
  }
  bind_outputs(builder, op, exec, work, instruction.copies);
  work.chain = make_chain(builder, op, exec, work.run);
  if (work.chain) {
    work.exchange = {};
  } else {
    work.kernel = op.op->def->kernel.collective(spec);
  }
  if (op.exec) work.leaders = builder.leaders(*op.op);
  work.noise = builder.noise_keys(op);
  bind_noise(work.noise, work.run);
  if (op.op->def->numerics.labels)
    instruction.checks.invalid_labels = std::make_unique<InvalidLabels>(replicas);
  for (const BufferId id : op.out) builder.fill_storage(op, id, exec, instruction.copies);
}

void prepare(CollectiveCall& work, const Instruction& instruction, Executor& executor) {
  executor.check_groups(instruction, work.leaders);
  executor.exchange(work.exchange);
  executor.derive_keys(instruction, work.noise);
  if (!work.chain) return;
  // Here, since merged parts are executed beside each other.
  executor.run_chain(*work.chain, work.noise);
}

void execute(const CollectiveCall& work, const Instruction& instruction, Executor& executor) {
  execute(work, instruction, executor, executor.pool());
}

void execute(const CollectiveCall& work, const Instruction& instruction, Executor& executor,
             ThreadPool& pool) {
  if (work.chain) return;
  const BoundRun& run = work.run;
  work.kernel({run.in.data(), run.in_stride.data(), run.out.data(), run.out_stride.data(), run.noise.data(),
               executor.io(), pool, 0, executor.active(), invalid_labels_of(instruction)});
}

std::string describe(const CollectiveCall&, const Instruction& instruction, const Ir&) {
  return std::string(instruction.op->def->name);
}

}  // namespace popsr
