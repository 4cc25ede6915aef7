#include "popsr/runtime/plan/plan_builder.h"

#include <algorithm>

#include "popsr/base/overloaded.h"
#include "popsr/exec/block_kernel.h"
#include "popsr/ir/op_def.h"
#include "popsr/runtime/ranks/rank_chain.h"

namespace popsr {

EvalSpec PlanBuilder::spec(const Op& op) const { return eval_spec(ir_, plan_.program_, op, kernels_); }

std::vector<Instruction> PlanBuilder::build(const std::vector<LoweredOp>& ops) {
  std::vector<Instruction> instructions;
  instructions.reserve(ops.size());
  for (const LoweredOp& op : ops) instructions.push_back(build(op));
  return instructions;
}

Instruction PlanBuilder::build(const LoweredOp& op) {
  Instruction instruction{.op = op.op, .path = op.path};
  if (const auto* const loop = op.as<lowered::Loop>()) {
    build_loop(*this, op, *loop, instruction);
    return instruction;
  }
  instruction.bytes = bytes_moved(op);
  if (const auto* const merged = op.as<lowered::Merged>()) {
    build_merged(*this, *merged, instruction);
    return instruction;
  }
  if (const auto* const sliced = op.as<lowered::Sliced>()) {
    build_sliced(*this, *sliced, instruction);
    return instruction;
  }
  if (op.exec) {
    const std::span<const Replica> replicas = blocks().representatives(execution(op));
    instruction.replicas.assign(replicas.begin(), replicas.end());
  }
  std::visit(
      Overloaded{
          [&](const lowered::Plain&) {
            (op.op->def->kernel.collective ? build_collective_call : build_kernel_run)(*this, op,
                                                                                       instruction);
          },
          [&](const lowered::WriteBack&) { build_kernel_run(*this, op, instruction); },
          [&](const lowered::Copy&) { build_copy_blocks(*this, op, instruction); },
          [&](const lowered::FusedProduct& fused) { build_fused_product(*this, op, fused, instruction); },
          [&](const lowered::FusedAccumulation& fused) {
            build_fused_accumulation(*this, op, fused, instruction);
          },
          [&](const lowered::Conditional& both) { build_conditional(*this, op, both, instruction); },
          [](const lowered::Loop&) {}, [](const lowered::Merged&) {}, [](const lowered::Sliced&) {}},
      op.form);
  if (options_.check_floats) instruction.checks.finite = FiniteCheck::of(ir_, plan_, op);
  for (std::size_t k = 0; k < op.out.size(); ++k) {
    if (plan_.program_.buffers[op.out[k]].in_slices) continue;
    const auto* const plain = op.as<lowered::Plain>();
    const bool is_view = plain != nullptr && k == 0 && plain->writes;
    instruction.checks.claims.push_back({op.out[k], k, op.facts[k], is_view ? &*plain->writes : nullptr});
  }
  return instruction;
}

std::size_t PlanBuilder::bytes_moved(const LoweredOp& op) const {
  std::size_t bytes = 0;
  for_each_operand(op, [&](BufferId id, bool) {
    bytes += static_cast<std::size_t>(blocks().num_blocks(storage(id))) * placement(id).nbytes;
  });
  if (op.is<lowered::Merged>() || op.is<lowered::Sliced>()) {
    for_each_body(op, [&](const std::vector<LoweredOp>& parts) {
      for (const LoweredOp& part : parts) bytes += bytes_moved(part);
    });
  }
  return bytes;
}

PartitionId PlanBuilder::execution(const LoweredOp& op) const {
  return execution_of(table_, op, options_.dedup);
}

std::uint32_t PlanBuilder::label(BufferId buffer, Replica replica) const {
  return blocks().labels(storage(buffer))[replica];
}

std::vector<std::uint32_t> PlanBuilder::receive(const LoweredOp& op, BufferId buffer,
                                                BlockExchange& exchange) const {
  Halo halo = halo_of(ir_, blocks(), op, storage(buffer));
  exchange.add(halo, placement(buffer).base, placement(buffer).nbytes);
  return std::move(halo.labels);
}

std::vector<const std::byte*> PlanBuilder::receive_all(const LoweredOp& op, BufferId buffer,
                                                       BlockExchange& exchange) const {
  std::vector<const std::byte*> addresses;
  for (const std::uint32_t label : receive(op, buffer, exchange)) {
    addresses.push_back(placement(buffer).base + label * placement(buffer).nbytes);
  }
  return addresses;
}

std::vector<BoundRun> PlanBuilder::bind_runs(const LoweredOp& op, PartitionId exec) const {
  const std::span<const Replica> replicas = blocks().representatives(exec);
  Operands operands = op.in;
  operands.append(op.out.begin(), op.out.end());
  const auto step = [&](BufferId id, std::size_t at) {
    return static_cast<std::int64_t>(label(id, replicas[at + 1])) -
           static_cast<std::int64_t>(label(id, replicas[at]));
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
      std::byte* data = id == kNone ? nullptr : block(id, replicas[first]);
      const bool moves = id != kNone && run.blocks > 1;
      const auto nbytes = id == kNone ? 0 : static_cast<std::ptrdiff_t>(placement(id).nbytes);
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

void PlanBuilder::fill_storage(const LoweredOp& op, BufferId buffer, PartitionId exec,
                               std::vector<BlockCopy>& copies) const {
  const PartitionId stored = storage(buffer);
  if (table_.num_blocks(stored) == table_.num_blocks(exec)) return;
  const std::size_t nbytes = placement(buffer).nbytes;
  for (const Replica replica : blocks().representatives(stored)) {
    const Replica source = blocks().representatives(exec)[blocks().labels(exec)[replica]];
    if (label(buffer, source) == label(buffer, replica)) continue;
    add_copy(op, copies, {block(buffer, replica), block(buffer, source), nbytes, replica});
  }
}

void PlanBuilder::add_copy(const LoweredOp& op, std::vector<BlockCopy>& copies, BlockCopy next) const {
  if (next.nbytes == 0) return;
  // Without dedup every replica stands for itself: its claims are yet to be checked.
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

Slab PlanBuilder::make_staging(std::size_t bytes) {
  Slab slab(bytes);
  plan_.memory_.activations += slab.size();
  return slab;
}

std::shared_ptr<ThreadRoom> PlanBuilder::thread_room(std::size_t bytes) {
  room_->bytes = std::max(room_->bytes, bytes);
  return room_;
}

void PlanBuilder::finish() {
  if (room_.use_count() == 1) return;  // no instruction has it
  for (int thread = 0; thread < options_.threads; ++thread) {
    room_->threads.push_back(make_staging(room_->bytes));
  }
}

std::optional<ReductionChain> PlanBuilder::chain(const LoweredOp& op) const {
  return chain_for(ir_, blocks(), plan_.program_, op, options_);
}

NoiseKeys PlanBuilder::noise_keys(const LoweredOp& op) {
  NoiseKeys noise;
  if (!is_stochastic(*op.op)) return noise;
  note_noise();
  for (const Replica replica : blocks().representatives(execution(op))) {
    noise.seed_replicas.push_back(table_.representatives(op.seeds)[table_.labels(op.seeds)[replica]]);
  }
  noise.keys.assign(op.out.size(), std::vector<kernels::NoiseKey>(noise.seed_replicas.size()));
  return noise;
}

std::vector<Replica> PlanBuilder::leaders(const Op& op) const {
  std::vector<Replica> leaders;
  const std::optional<ReplicaGrouping> groups = collective_groups(ir_, op);
  if (!groups) return leaders;
  for (Replica r = 0; r < static_cast<Replica>(ir_.replication()); ++r) {
    leaders.push_back(groups->members(r).front());
  }
  return leaders;
}

void bind_noise(const NoiseKeys& noise, BoundRun& run) {
  run.noise.assign(run.out.size(), nullptr);
  for (std::size_t k = 0; k < noise.keys.size(); ++k) run.noise[k] = noise.keys[k].data() + run.first;
}

}  // namespace popsr
