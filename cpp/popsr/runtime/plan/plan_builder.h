// Turns lowered ops into instructions: picks blocks, addresses and kernels.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "popsr/exec/block_kernel.h"
#include "popsr/exec/reduction_chain.h"
#include "popsr/runtime/lowering/rewrites.h"
#include "popsr/runtime/plan/plan.h"
#include "popsr/runtime/ranks/block_exchange.h"

namespace popsr {

/// Builder of the instructions of one plan. The build functions of the kinds use its public functions.
class PlanBuilder {
 public:
  PlanBuilder(const Ir& ir, const kernels::KernelTable& kernels, const PlanOptions& options, Plan& plan)
      : ir_(ir), kernels_(kernels), options_(options), plan_(plan), table_(ir.partitions()) {}

  std::vector<Instruction> build(const std::vector<LoweredOp>& ops);
  /// Allocates memory that instructions share; called after the last instruction.
  void finish();

  const Ir& ir() const { return ir_; }
  const kernels::KernelTable& kernels() const { return kernels_; }
  const PlanOptions& options() const { return options_; }
  PartitionTable& table() const { return table_; }
  /// Blocks to store and to compute.
  const LocalBlocks& blocks() const { return plan_.blocks_; }
  EvalSpec spec(const Op& op) const;
  /// True if narrow outputs of the op are rounded stochastically.
  bool is_stochastic(const Op& op) const { return plan_.program_.seed_rules.of(ir_, op).has_value(); }

  /// Execution partition of the op (execution_of).
  PartitionId execution(const LoweredOp& op) const;
  PartitionId storage(BufferId buffer) const { return plan_.program_.buffers[buffer].storage; }
  std::int64_t elements(BufferId buffer) const {
    return num_elements(plan_.program_.buffers[buffer].type.shape);
  }
  bool is_in_slices(BufferId buffer) const { return plan_.program_.buffers[buffer].in_slices; }
  const Placement& placement(BufferId buffer) const { return plan_.memory_.placements[buffer]; }
  std::byte* block(BufferId buffer, Replica replica) const { return plan_.block(buffer, replica); }
  /// Bytes of all blocks of the op's operands.
  std::size_t bytes_moved(const LoweredOp& op) const;

  /// Adds the messages that send the blocks of an operand to the ranks that see them. Returns the block
  /// that holds each replica's value, kAbsentBlock if this rank does not see it.
  std::vector<std::uint32_t> receive(const LoweredOp& op, BufferId buffer, BlockExchange& exchange) const;
  /// Variant of receive() for an operand that all ranks see; returns addresses.
  std::vector<const std::byte*> receive_all(const LoweredOp& op, BufferId buffer,
                                            BlockExchange& exchange) const;

  /// Kernel of an op that ranks compute one after another; nullopt for others.
  std::optional<ReductionChain> chain(const LoweredOp& op) const;

  std::vector<BoundRun> bind_runs(const LoweredOp& op, PartitionId exec) const;
  /// Copies computed blocks to the rest of a storage that is finer than the fact.
  void fill_storage(const LoweredOp& op, BufferId buffer, PartitionId exec,
                    std::vector<BlockCopy>& copies) const;
  /// Appends a copy, merging it with the one before if both sides continue and the same replicas run both.
  void add_copy(const LoweredOp& op, std::vector<BlockCopy>& copies, BlockCopy next) const;
  /// Allocates temporary memory of one instruction.
  Slab make_staging(std::size_t bytes);
  /// Reserves `bytes` bytes of shared temporaries for each thread; allocated by finish().
  std::shared_ptr<ThreadRoom> thread_room(std::size_t bytes);
  /// Allocates the keys of all outputs, if the op is rounded stochastically.
  NoiseKeys noise_keys(const LoweredOp& op);
  void note_noise() { plan_.stochastic_ = true; }
  /// Smallest replica of the group with which each replica exchanges values; empty for an op that a replica
  /// can run alone.
  std::vector<Replica> leaders(const Op& op) const;

 private:
  Instruction build(const LoweredOp& op);
  std::uint32_t label(BufferId buffer, Replica replica) const;

  const Ir& ir_;
  const kernels::KernelTable& kernels_;
  const PlanOptions& options_;
  Plan& plan_;
  PartitionTable& table_;
  std::shared_ptr<ThreadRoom> room_ = std::make_shared<ThreadRoom>();
};

/// Points the run at its blocks' keys, or at null for outputs that are rounded to nearest.
void bind_noise(const NoiseKeys& noise, BoundRun& run);

}  // namespace popsr
