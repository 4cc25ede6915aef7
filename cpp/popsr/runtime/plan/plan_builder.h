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

/// Makes the instructions of one plan. The build functions of the kinds use its public functions.
class PlanBuilder {
 public:
  PlanBuilder(const Ir& ir, const kernels::KernelTable& kernels, const PlanOptions& options, Plan& plan)
      : ir_(ir), kernels_(kernels), options_(options), plan_(plan), table_(ir.partitions()) {}

  std::vector<Instruction> build(const std::vector<LoweredOp>& ops);
  /// After all instructions: allocates what they share.
  void finish();

  const Ir& ir() const { return ir_; }
  const kernels::KernelTable& kernels() const { return kernels_; }
  const PlanOptions& options() const { return options_; }
  PartitionTable& table() const { return table_; }
  /// The blocks to store and to compute.
  const LocalBlocks& blocks() const { return plan_.blocks_; }
  EvalSpec spec(const Op& op) const;

  /// As of the plan.
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

  /// Adds the messages that bring the blocks of an operand to the ranks that see them. Returns the block
  /// that holds each replica's value, kAbsentBlock where this rank does not see it.
  std::vector<std::uint32_t> receive(const LoweredOp& op, BufferId buffer, BlockExchange& exchange) const;
  /// The same as addresses, of an operand that all ranks see.
  std::vector<const std::byte*> receive_all(const LoweredOp& op, BufferId buffer,
                                            BlockExchange& exchange) const;

  /// The kernel of an op that ranks compute one after another.
  std::optional<ReductionChain> chain(const LoweredOp& op) const;

  std::vector<BoundRun> bind_runs(const LoweredOp& op, PartitionId exec) const;
  /// Copies computed blocks to the rest of a storage that is finer than the fact.
  void fill_storage(const LoweredOp& op, BufferId buffer, PartitionId exec,
                    std::vector<BlockCopy>& copies) const;
  /// Appends a copy, merging it with the one before when both sides continue and the same replicas run both.
  void add_copy(const LoweredOp& op, std::vector<BlockCopy>& copies, BlockCopy next) const;
  /// Memory of temporaries of one instruction.
  Slab make_staging(std::size_t bytes);
  /// Room for temporaries of so many bytes for each thread, which instructions share; there after finish().
  std::shared_ptr<ThreadRoom> thread_room(std::size_t bytes);
  /// Room for the keys of all outputs, when the op is rounded stochastically.
  NoiseKeys noise_keys(const LoweredOp& op);
  void note_noise() { plan_.stochastic_ = true; }
  /// For each replica the smallest one of the group with which it exchanges values; empty when alone.
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

/// Points the run at its blocks' keys; at null for outputs that are rounded to nearest.
void bind_noise(const NoiseKeys& noise, BoundRun& run);

}  // namespace popsr
