// A program compiled with its facts: instructions with kernels, block structure and addresses. Running it
// looks nothing up and allocates nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "popsr/analysis/partition_analysis.h"
#include "popsr/replica/local_blocks.h"
#include "popsr/runtime/instructions/instruction.h"
#include "popsr/runtime/lowering/lowered_program.h"
#include "popsr/runtime/plan/layout.h"
#include "popsr/runtime/plan/plan_program.h"

namespace popsr {

class Plan {
 public:
  Plan(const PartitionAnalysis& facts, const PlanOptions& options);
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  const LoweredProgram& program() const { return program_; }
  const Memory& memory() const { return memory_; }
  /// Blocks that this rank stores and computes.
  const LocalBlocks& blocks() const { return blocks_; }
  std::vector<Instruction>& instructions() { return instructions_; }
  const std::vector<Instruction>& instructions() const { return instructions_; }
  bool stochastic() const { return stochastic_; }
  /// Bytes of Memory::activations without temporaries of instructions.
  std::size_t arena_bytes() const { return arena_; }

  /// Buffer of a variable, or of the shard or remote entry that holds it.
  BufferId variable(TensorId id) const;
  /// Address of the block that holds `replica`'s value; this rank must have it.
  std::byte* block(BufferId buffer, Replica replica) const;

  /// True if the variable refers to the program's initial values.
  bool is_shared(BufferId variable) const { return memory_.placements[variable].is_shared; }
  /// Gives such a variable memory of its own; instructions use its address after rebuild().
  void own(BufferId variable);
  bool is_outdated() const { return is_outdated_; }
  /// Builds the instructions again; their counters start at 0.
  void rebuild();

  /// Transfers of each stream in one run; the maximum over replicas if branches differ.
  IdVector<StreamId, std::int64_t> stream_reads() const;
  /// Iterations of one run: passes of the loops that are in no other loop and no branch; for a program
  /// without loops, the largest number of transfers of a stream. 0 if there is neither.
  std::int64_t iterations() const { return iterations_; }
  /// Number that changes whenever instructions are built, unique among all plans of the process.
  std::uint64_t build_id() const { return build_id_; }
  /// Text with one line per instruction: outputs, op, partition, blocks, bytes.
  std::string to_string() const;

 private:
  friend class PlanBuilder;
  void build();
  void count_iterations();
  void choose_halos(const PlanOptions& options);

  const Ir* ir_;
  LocalBlocks blocks_;
  LoweredProgram program_;
  Memory memory_;
  PlanOptions options_;
  std::size_t arena_ = 0;  ///< Bytes of activations without temporaries of instructions.
  std::vector<Instruction> instructions_;
  bool stochastic_ = false, is_outdated_ = false;
  std::int64_t iterations_ = 0;
  std::uint64_t build_id_ = 0;
};

}  // namespace popsr
