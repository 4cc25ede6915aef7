#include "popsr/runtime/plan/plan_builder.h"

#include <algorithm>

#include "popsr/base/error.h"
#include "popsr/ir/op_def.h"
#include "popsr/runtime/execution/run_watch.h"
#include "popsr/runtime/lowering/rewrites.h"

namespace popsr {

/// Values below this size share a pass with others.
constexpr std::size_t kShared = std::size_t{1} << 18;
/// Less than that is not worth waking the threads.
constexpr std::size_t kWorthThreads = std::size_t{1} << 17;

void PlanBuilder::add_copy(const LoweredOp& op, std::vector<BlockCopy>& copies, BlockCopy next) const {
  if (next.nbytes == 0) return;
  // Without dedup every replica stands for itself: what is claimed of it is yet to be checked.
  const auto together = [&](Replica a, Replica b) {
    return !op.exec || (options_.dedup && table_.labels(*op.exec)[a] == table_.labels(*op.exec)[b]);
  };
  if (!copies.empty()) {
    BlockCopy& last = copies.back();
    if (last.to + last.nbytes == next.to && last.from + last.nbytes == next.from &&
        together(last.replica, next.replica)) {
      last.nbytes += next.nbytes;
      return;
    }
  }
  copies.push_back(next);
}

std::vector<Instruction> PlanBuilder::build(const std::vector<LoweredOp>& ops) {
  std::vector<Instruction> instructions;
  instructions.reserve(ops.size());
  for (const LoweredOp& op : ops) instructions.push_back(build(op));
  return instructions;
}

Instruction PlanBuilder::build(const LoweredOp& op) {
  Instruction instruction;
  instruction.op = op.op;
  instruction.path = op.path;
  instruction.facts = op.facts;
  if (op.kind == LoweredOp::Kind::kLoop) {
    instruction.kind = Instruction::Kind::kLoop;
    instruction.count = op.count;
    instruction.path_end = op.path_end;
    instruction.body = build(op.body);
    return instruction;
  }
  if (op.kind == LoweredOp::Kind::kMerged) {
    build_merged(op, instruction);
    instruction.heavy = bytes_moved(op) >= LookTimer::kHeavy;
    return instruction;
  }
  if (op.exec) {
    const std::span<const Replica> replicas = table_.representatives(execution(op));
    instruction.replicas.assign(replicas.begin(), replicas.end());
  }
  if (op.kind == LoweredOp::Kind::kCopy) {
    build_copy(op, instruction);
  } else if (op.kind == LoweredOp::Kind::kConditional) {
    build_conditional(op, instruction);
  } else if (!op.steps.empty()) {
    build_steps(op, instruction);
  } else if (op.sink) {
    build_product(op, instruction);
  } else if (op.op->def->kernel.exchange) {
    build_exchange(op, instruction);
  } else {
    build_kernel(op, instruction);
  }
  instruction.heavy = bytes_moved(op) >= LookTimer::kHeavy;
  if (options_.check_floats) instruction.finite = FiniteCheck::of(ir_, plan_, op);
  for (std::size_t k = 0; k < op.out.size(); ++k) instruction.claims.push_back({op.out[k], k, op.facts[k]});
  return instruction;
}

void PlanBuilder::build_merged(const LoweredOp& op, Instruction& instruction) {
  instruction.kind = Instruction::Kind::kMerged;
  instruction.body = build(op.body);
  std::size_t shared = 0;
  for (std::size_t p = 0; p < instruction.body.size(); ++p) {
    const Instruction& part = instruction.body[p];
    instruction.blocks += part.blocks;
    instruction.claims.insert(instruction.claims.end(), part.claims.begin(), part.claims.end());
    // The host serves one at a time; big values keep all threads busy alone.
    const bool is_collective =
        part.kind == Instruction::Kind::kExchange && !part.op->inputs.empty() && !part.op->outputs.empty();
    const std::size_t bytes = bytes_moved(op.body[p]);
    if (!is_collective || bytes >= kShared) continue;
    instruction.together.push_back(p);
    shared += bytes;
  }
  if (shared < kWorthThreads) instruction.together.clear();
}

std::size_t PlanBuilder::bytes_moved(const LoweredOp& op) const {
  std::size_t bytes = 0;
  const auto add = [&](BufferId id) {
    if (id == kNone) return;
    bytes += static_cast<std::size_t>(table_.num_blocks(plan_.program_.buffers[id].storage)) *
             plan_.memory_.placements[id].nbytes;
  };
  std::ranges::for_each(op.in, add);
  std::ranges::for_each(op.out, add);
  add(op.lhs);
  add(op.rhs);
  for (const FoldStep& step : op.steps) {
    add(step.lhs);
    add(step.rhs);
  }
  if (op.kind == LoweredOp::Kind::kMerged) {
    for (const LoweredOp& part : op.body) bytes += bytes_moved(part);
  }
  return bytes;
}

PartitionId PlanBuilder::execution(const LoweredOp& op) const {
  if (!options_.dedup) return table_.bottom();
  PartitionId exec = op.exec.value_or(table_.top());
  for (const PartitionId fact : op.facts) exec = table_.meet(exec, fact);
  return exec;
}

std::uint32_t PlanBuilder::label(BufferId buffer, Replica replica) const {
  return table_.labels(plan_.program_.buffers[buffer].storage)[replica];
}

std::vector<BoundRun> PlanBuilder::bind_runs(const LoweredOp& op, PartitionId exec) const {
  const std::span<const Replica> replicas = table_.representatives(exec);
  std::vector<BufferId> operands = op.in;
  operands.insert(operands.end(), op.out.begin(), op.out.end());
  const auto step = [&](BufferId id, std::size_t block) {
    return static_cast<std::int64_t>(label(id, replicas[block + 1])) -
           static_cast<std::int64_t>(label(id, replicas[block]));
  };
  std::vector<BoundRun> runs;
  for (std::size_t first = 0; first < replicas.size();) {
    // The longest run over which every operand moves by a constant number of blocks.
    std::size_t end = first + 1;
    const auto constant = [&](BufferId id) { return id == kNone || step(id, end - 1) == step(id, first); };
    while (end < replicas.size() && std::ranges::all_of(operands, constant)) ++end;
    BoundRun run{.first = static_cast<std::int64_t>(first), .blocks = static_cast<std::int64_t>(end - first)};
    for (std::size_t i = 0; i < operands.size(); ++i) {
      const BufferId id = operands[i];
      std::byte* data = id == kNone ? nullptr : plan_.block(id, replicas[first]);
      const bool moves = id != kNone && run.blocks > 1;
      const auto nbytes = id == kNone ? 0 : static_cast<std::ptrdiff_t>(plan_.memory_.placements[id].nbytes);
      const std::ptrdiff_t stride = moves ? step(id, first) * nbytes : 0;
      if (i < op.in.size()) {
        run.in.push_back(data);
        run.in_stride.push_back(stride);
      } else {
        run.out.push_back(data);
        run.out_stride.push_back(stride);
      }
    }
    runs.push_back(std::move(run));
    first = end;
  }
  return runs;
}

void PlanBuilder::spread(const LoweredOp& op, BufferId buffer, PartitionId exec,
                         std::vector<BlockCopy>& copies) const {
  const PartitionId storage = plan_.program_.buffers[buffer].storage;
  if (table_.num_blocks(storage) == table_.num_blocks(exec)) return;
  const std::size_t nbytes = plan_.memory_.placements[buffer].nbytes;
  for (const Replica replica : table_.representatives(storage)) {
    const Replica source = table_.representatives(exec)[table_.labels(exec)[replica]];
    if (label(buffer, source) == label(buffer, replica)) continue;
    add_copy(op, copies, {plan_.block(buffer, replica), plan_.block(buffer, source), nbytes, replica});
  }
}

void PlanBuilder::add_noise(const LoweredOp& op, Instruction& instruction) {
  for (BoundRun& run : instruction.runs) run.noise.assign(op.out.size(), nullptr);
  if (!op.op->seeds) return;
  plan_.stochastic_ = true;
  const PartitionId exec = execution(op);
  for (const Replica replica : table_.representatives(exec)) {
    instruction.seed_replicas.push_back(table_.representatives(op.seeds)[table_.labels(op.seeds)[replica]]);
  }
  instruction.keys.assign(op.out.size(), std::vector<kernels::NoiseKey>(instruction.seed_replicas.size()));
  for (BoundRun& run : instruction.runs) {
    for (std::size_t k = 0; k < op.out.size(); ++k) run.noise[k] = instruction.keys[k].data() + run.first;
  }
}

void PlanBuilder::build_kernel(const LoweredOp& op, Instruction& instruction) {
  const PartitionId exec = execution(op);
  instruction.kind = Instruction::Kind::kKernel;
  instruction.write_back = op.kind == LoweredOp::Kind::kWriteBack;
  const EvalFn eval = instruction.write_back ? op.op->def->memory.write_back : op.op->def->kernel.eval;
  POPSR_CHECK(eval != nullptr);
  EvalSpec spec = eval_spec(ir_, *op.op, kernels_);
  spec.clamp_scales = options_.clamp_scales;
  instruction.kernel = eval(spec);
  instruction.blocks = table_.num_blocks(exec);
  instruction.runs = bind_runs(op, exec);
  stage_shared(op, exec, instruction);
  add_noise(op, instruction);
  if (op.op->def->numerics.labels)
    instruction.stray = std::make_unique<StrayLabels>(table_.representatives(exec));
  for (const BufferId id : op.out) spread(op, id, exec, instruction.copies);
}

/// An operand that is overwritten, in fewer blocks than the op has, since another output has more: all of
/// them read it, so it is written when the last has run.
void PlanBuilder::stage_shared(const LoweredOp& op, PartitionId exec, Instruction& instruction) const {
  if (op.out.size() < 2 || instruction.write_back) return;  // to write back twice changes nothing
  for (std::size_t k = 0; k < op.out.size(); ++k) {
    const PartitionId storage = plan_.program_.buffers[op.out[k]].storage;
    const bool overwrites = std::ranges::find(op.in, op.out[k]) != op.in.end();
    if (!overwrites || table_.num_blocks(storage) >= table_.num_blocks(exec)) continue;
    const std::size_t nbytes = plan_.memory_.placements[op.out[k]].nbytes;
    const Slab& slab =
        instruction.staging.emplace_back(nbytes * static_cast<std::size_t>(table_.num_blocks(exec)));
    plan_.memory_.activations += slab.size();
    for (BoundRun& run : instruction.runs) {
      run.out[k] = slab.data() + static_cast<std::size_t>(run.first) * nbytes;
      run.out_stride[k] = static_cast<std::ptrdiff_t>(nbytes);
    }
    for (const Replica replica : table_.representatives(storage)) {
      const std::byte* const from = slab.data() + table_.labels(exec)[replica] * nbytes;
      add_copy(op, instruction.copies, {plan_.block(op.out[k], replica), from, nbytes, replica});
    }
  }
}

std::vector<Replica> PlanBuilder::leaders(const Op& op) const {
  std::vector<Replica> leaders;
  const std::optional<ReplicaGrouping> groups = exchange_groups(ir_, op);
  if (!groups) return leaders;
  for (Replica r = 0; r < static_cast<Replica>(ir_.replication()); ++r) {
    leaders.push_back(groups->members(r).front());
  }
  return leaders;
}

void PlanBuilder::build_exchange(const LoweredOp& op, Instruction& instruction) {
  const PartitionId exec = execution(op);
  const std::span<const Replica> replicas = table_.representatives(exec);
  instruction.kind = Instruction::Kind::kExchange;
  instruction.blocks = static_cast<std::int64_t>(replicas.size());
  ExchangeSpec spec{eval_spec(ir_, *op.op, kernels_), {replicas.begin(), replicas.end()}, {}};
  BoundRun run{.blocks = instruction.blocks};
  for (const BufferId id : op.in) {
    spec.in_labels.push_back(id == kNone ? std::span<const std::uint32_t>()
                                         : table_.labels(plan_.program_.buffers[id].storage));
    run.in.push_back(id == kNone ? nullptr : plan_.memory_.placements[id].base);
    run.in_stride.push_back(id == kNone ? 0
                                        : static_cast<std::ptrdiff_t>(plan_.memory_.placements[id].nbytes));
  }
  bind_exchange_outputs(op, exec, bind_runs(op, exec), run, instruction);
  instruction.exchange = op.op->def->kernel.exchange(spec);
  instruction.runs.push_back(std::move(run));
  if (op.exec) instruction.leaders = leaders(*op.op);
  add_noise(op, instruction);
  if (op.op->def->numerics.labels) instruction.stray = std::make_unique<StrayLabels>(replicas);
  for (const BufferId id : op.out) spread(op, id, exec, instruction.copies);
}

bool PlanBuilder::overwrites_operands(const LoweredOp& op, PartitionId exec) const {
  if (op.op->def->memory.effects.empty()) return false;
  // A block that holds whole groups reads nothing that others write, since storage is never coarser than
  // blocks. Members are blocks of their own without dedup, where replicas may part, and when their seeds
  // differ.
  const std::optional<ReplicaGrouping> groups = exchange_groups(ir_, *op.op);
  return groups && !table_.refines(groups->partition(table_), exec);
}

void PlanBuilder::bind_exchange_outputs(const LoweredOp& op, PartitionId exec,
                                        const std::vector<BoundRun>& runs, BoundRun& run,
                                        Instruction& instruction) const {
  const bool staged = runs.size() != 1 || overwrites_operands(op, exec);
  for (std::size_t k = 0; k < op.out.size(); ++k) {
    const std::size_t nbytes = plan_.memory_.placements[op.out[k]].nbytes;
    if (!staged) {
      run.out.push_back(runs[0].out[k]);
      run.out_stride.push_back(runs[0].out_stride[k]);
      continue;
    }
    const std::span<const Replica> replicas = table_.representatives(exec);
    const Slab& slab = instruction.staging.emplace_back(nbytes * replicas.size());
    plan_.memory_.activations += slab.size();
    run.out.push_back(slab.data());
    run.out_stride.push_back(static_cast<std::ptrdiff_t>(nbytes));
    for (std::size_t b = 0; b < replicas.size(); ++b) {
      add_copy(op, instruction.copies,
               {plan_.block(op.out[k], replicas[b]), slab.data() + b * nbytes, nbytes, replicas[b]});
    }
  }
}

void PlanBuilder::build_product(const LoweredOp& op, Instruction& instruction) {
  const PartitionId exec = execution(op);
  instruction.kind = Instruction::Kind::kProduct;
  instruction.product = op.product;
  instruction.sink = op.sink;
  instruction.product_path = op.product_path;
  if (op.sink->in_registers && op.product->def->kernel.product) {
    instruction.folded = op.product->def->kernel.product(eval_spec(ir_, *op.product, kernels_));
  }
  if (!instruction.folded) {
    instruction.slices = std::make_unique<SliceFold>(ir_, kernels_, op, options_.threads);
    plan_.memory_.activations += instruction.slices->staging_bytes();
    add_noise(op, instruction);
  }
  instruction.blocks = table_.num_blocks(exec);
  if (op.exec) instruction.leaders = leaders(*op.op);
  const ReplicaGrouping group = op.sink->group.value_or(ReplicaGrouping::from_stride(ir_.replication()));
  for (const Replica replica : table_.representatives(exec)) {
    BoundProduct bound;
    const std::vector<Replica> self{replica};
    const std::span<const Replica> members = op.sink->target ? std::span(self) : group.members(replica);
    for (const Replica member : members) {
      bound.lhs.push_back(plan_.block(op.lhs, member));
      bound.rhs.push_back(plan_.block(op.rhs, member));
    }
    const bool noisy = op.product->seeds && instruction.slices;
    for (const Replica member : noisy ? members : std::span<const Replica>()) {
      bound.seed_replicas.push_back(
          table_.representatives(op.product_seeds)[table_.labels(op.product_seeds)[member]]);
    }
    plan_.stochastic_ |= noisy;
    bound.noise.resize(bound.seed_replicas.size());
    for (const BufferId id : op.in) bound.in.push_back(id == kNone ? nullptr : plan_.block(id, replica));
    bound.out = plan_.block(op.out[0], replica);
    bound.replica = replica;
    instruction.products.push_back(std::move(bound));
  }
  spread(op, op.out[0], exec, instruction.copies);
}

void PlanBuilder::build_steps(const LoweredOp& op, Instruction& instruction) {
  const PartitionId exec = execution(op);
  instruction.kind = Instruction::Kind::kProduct;
  instruction.product = op.product;
  instruction.sink = op.sink;
  instruction.folded = op.product->def->kernel.product(eval_spec(ir_, *op.product, kernels_));
  instruction.blocks = table_.num_blocks(exec);
  for (const FoldStep& step : op.steps) instruction.steps.push_back({step.op, step.product, step.sink});
  const ReplicaGrouping group = op.sink->group.value_or(ReplicaGrouping::from_stride(ir_.replication()));
  for (const Replica replica : table_.representatives(exec)) {
    BoundProduct bound;
    bound.out = plan_.block(op.out[0], replica);
    bound.replica = replica;
    BoundSteps stepped;
    const std::vector<Replica> self{replica};
    for (const Replica member : op.sink->target ? std::span(self) : group.members(replica)) {
      stepped.start.push_back(plan_.block(op.in[0], member));
      for (const FoldStep& step : op.steps) {
        bound.lhs.push_back(plan_.block(step.lhs, member));
        bound.rhs.push_back(plan_.block(step.rhs, member));
        std::vector<const std::byte*>& in = stepped.in.emplace_back();
        for (const BufferId id : step.in) in.push_back(id == kNone ? nullptr : plan_.block(id, member));
      }
    }
    instruction.products.push_back(std::move(bound));
    instruction.stepped.push_back(std::move(stepped));
  }
  spread(op, op.out[0], exec, instruction.copies);
}

void PlanBuilder::build_copy(const LoweredOp& op, Instruction& instruction) {
  instruction.kind = Instruction::Kind::kCopy;
  const PartitionId storage = plan_.program_.buffers[op.out[0]].storage;
  const std::span<const Replica> replicas = table_.representatives(storage);
  instruction.blocks = static_cast<std::int64_t>(replicas.size());
  if (op.exec) instruction.replicas.assign(replicas.begin(), replicas.end());
  const std::size_t nbytes = plan_.memory_.placements[op.out[0]].nbytes;
  for (const Replica replica : replicas) {
    add_copy(op, instruction.copies,
             {plan_.block(op.out[0], replica), plan_.block(op.in[0], replica), nbytes, replica});
  }
}

void PlanBuilder::build_conditional(const LoweredOp& op, Instruction& instruction) {
  instruction.kind = Instruction::Kind::kConditional;
  const auto replicas = static_cast<Replica>(ir_.replication());
  for (Replica r = 0; r < replicas; ++r) instruction.conditions.push_back(plan_.block(op.in[0], r));
  for (std::vector<std::uint8_t>& branch : instruction.branches) branch.resize(replicas);
  instruction.body = build(op.body);
  instruction.else_body = build(op.else_body);
}

}  // namespace popsr
