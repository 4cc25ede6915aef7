// Turns lowered ops into instructions: picks blocks, addresses and kernels.
#pragma once

#include <vector>

#include "popsr/runtime/plan/plan.h"

namespace popsr {

class PlanBuilder {
 public:
  PlanBuilder(const Ir& ir, const kernels::KernelTable& kernels, const PlanOptions& options, Plan& plan)
      : ir_(ir), kernels_(kernels), options_(options), plan_(plan), table_(ir.partitions()) {}

  std::vector<Instruction> build(const std::vector<LoweredOp>& ops);

 private:
  Instruction build(const LoweredOp& op);
  void build_merged(const LoweredOp& op, Instruction& instruction);
  void build_kernel(const LoweredOp& op, Instruction& instruction);
  void build_exchange(const LoweredOp& op, Instruction& instruction);
  /// Stages results that may not overwrite operands at once, and blocks without a constant stride between
  /// them.
  void bind_exchange_outputs(const LoweredOp& op, PartitionId exec, const std::vector<BoundRun>& runs,
                             BoundRun& run, Instruction& instruction) const;
  void build_product(const LoweredOp& op, Instruction& instruction);
  void build_steps(const LoweredOp& op, Instruction& instruction);
  void build_copy(const LoweredOp& op, Instruction& instruction);
  void build_conditional(const LoweredOp& op, Instruction& instruction);
  void add_noise(const LoweredOp& op, Instruction& instruction);

  /// The partition whose blocks an op computes one by one: the meet of its outputs' facts, inside
  /// conditionals also with the replicas that run it together.
  PartitionId execution(const LoweredOp& op) const;
  std::vector<BoundRun> bind_runs(const LoweredOp& op, PartitionId exec) const;
  /// Copies computed blocks to the rest of a storage that is finer than the fact.
  void spread(const LoweredOp& op, BufferId buffer, PartitionId exec, std::vector<BlockCopy>& copies) const;
  /// Lets an output wait that would overwrite what other blocks of the op still read.
  void stage_shared(const LoweredOp& op, PartitionId exec, Instruction& instruction) const;
  /// Appends a copy, merging it with the one before when both sides continue and the same replicas run both.
  void add_copy(const LoweredOp& op, std::vector<BlockCopy>& copies, BlockCopy next) const;
  /// For each replica the smallest one of the group with which it exchanges values; empty when alone.
  std::vector<Replica> leaders(const Op& op) const;
  /// True where an in-place result would overwrite what another block of the op still reads.
  bool overwrites_operands(const LoweredOp& op, PartitionId exec) const;
  std::size_t bytes_moved(const LoweredOp& op) const;
  std::uint32_t label(BufferId buffer, Replica replica) const;

  const Ir& ir_;
  const kernels::KernelTable& kernels_;
  const PlanOptions& options_;
  Plan& plan_;
  PartitionTable& table_;
};

}  // namespace popsr
