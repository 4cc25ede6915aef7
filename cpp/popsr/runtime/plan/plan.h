// A program compiled with its facts: instructions with kernels, block structure and addresses. Running it
// looks nothing up and allocates nothing.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "popsr/analysis/partition_analysis.h"
#include "popsr/kernels/contract/kernel_table.h"
#include "popsr/runtime/check/finite_check.h"
#include "popsr/runtime/instructions/tile_fusion.h"
#include "popsr/runtime/lowering/lowering.h"
#include "popsr/runtime/plan/layout.h"

namespace popsr {

struct PlanOptions {
  bool dedup = true;          ///< One buffer and one computation per block; false: per replica.
  bool fold = true;           ///< Fold products into their consumers.
  bool unroll = true;         ///< Write out loops where that lets products fold: errors name no iteration.
  int threads = 1;            ///< That the plan will run on, for temporaries.
  bool clamp_scales = false;  ///< As in EvalSpec.
  bool check_floats = false;  ///< Instructions get a FiniteCheck.
};

/// Blocks first..first+blocks-1 of an instruction, whose operands have constant strides.
struct BoundRun {
  std::vector<const std::byte*> in = {};
  std::vector<std::ptrdiff_t> in_stride = {};
  std::vector<std::byte*> out = {};
  std::vector<std::ptrdiff_t> out_stride = {};
  std::vector<const kernels::NoiseKey*> noise =
      {};  ///< Per output, from block `first` on; null without noise.
  std::int64_t first = 0;
  std::int64_t blocks = 0;
};

struct BlockCopy {
  std::byte* to = nullptr;
  const std::byte* from = nullptr;
  std::size_t nbytes = 0;
  Replica replica = 0;  ///< Whose value it is; another of its block of exec, when several copies were merged.
};

/// What must hold after an instruction: output `output` equals in all replicas of each block of `fact`.
struct Claim {
  BufferId buffer = kNone;
  std::size_t output = 0;
  PartitionId fact = {};
};

/// A product that is accumulated on the way, in all blocks.
struct BoundStep {
  const Op* op = nullptr;
  const Op* product = nullptr;
  FoldSink sink = {};
};

/// Products that are accumulated one after another in one output block, member by member of its group.
struct BoundSteps {
  std::vector<const void*> start = {};                 ///< Per member.
  std::vector<std::vector<const std::byte*>> in = {};  ///< Per product: operands of its step.
};

struct Instruction {
  enum class Kind : std::uint8_t { kKernel, kExchange, kProduct, kCopy, kLoop, kMerged, kConditional };
  Kind kind = Kind::kCopy;
  const Op* op = nullptr;       ///< Null for copies.
  const Op* product = nullptr;  ///< The folded product; with steps the last.
  bool heavy = false;           ///< As in LookTimer.
  bool write_back = false;      ///< From the view that `op` made to what it is a view of.
  std::int64_t blocks = 0;      ///< Computed by one execution.
  BlockKernel kernel = {};
  ExchangeKernel exchange = {};
  ProductKernel folded = {};  ///< kProduct, in registers; else `slices`.
  std::unique_ptr<SliceFold> slices = {};
  std::optional<FoldSink> sink = {};
  std::vector<BoundRun> runs = {};          ///< kKernel; one for kExchange.
  std::vector<BoundProduct> products = {};  ///< kProduct
  std::vector<BoundStep> steps = {};        ///< kProduct: those of `op` itself, or what it reduces.
  std::vector<BoundSteps> stepped = {};     ///< With steps: per product block.
  std::vector<BlockCopy> copies = {};       ///< kCopy; after others: a fact coarser than its storage.
  std::vector<Slab> staging = {};  ///< kExchange: outputs that may not overwrite their inputs at once.
  // Noise: one key per output and block, made before each execution. Empty when nothing is rounded
  // stochastically.
  std::vector<std::vector<kernels::NoiseKey>> keys = {};
  std::vector<Replica> seed_replicas = {};  ///< Smallest replica of each block's seed block.
  PathId path = 0, product_path = 0;
  // Inside conditionals: a block is computed iff its replica takes the branch.
  std::vector<Replica> replicas = {};  ///< Smallest replica of each block.
  std::vector<Replica> leaders = {};   ///< Exchanges in groups: smallest replica of each replica's group.
  std::vector<Instruction> body =
      {};  ///< Loops: one iteration. Merged ops: the parts. Conditionals: a branch.
  std::vector<Instruction> else_body = {};
  std::vector<std::size_t> together = {};  ///< Merged ops: parts that share one pass of the threads.
  // Loops.
  std::int64_t count = 0;
  PathId path_end = 0;
  // Conditionals.
  std::vector<const std::byte*> conditions = {};           ///< By replica.
  std::array<std::vector<std::uint8_t>, 2> branches = {};  ///< Replicas that took the branch this time.
  std::unique_ptr<StrayLabels> stray = {};                 ///< Of ops with OpDef::labels.
  std::unique_ptr<FiniteCheck> finite = {};                ///< With PlanOptions::check_floats.
  std::vector<Claim> claims = {};
  std::vector<PartitionId> facts = {};
  std::uint64_t executions = 0;
  std::uint64_t computed = 0;  ///< Blocks.
  /// Iterations of the program that one pass of a loop, or one execution of another instruction, finishes.
  std::int64_t iterations = 0;
};

class Plan {
 public:
  Plan(const PartitionAnalysis& facts, const PlanOptions& options);
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  const LoweredProgram& program() const { return program_; }
  const Memory& memory() const { return memory_; }
  std::vector<Instruction>& instructions() { return instructions_; }
  const std::vector<Instruction>& instructions() const { return instructions_; }
  bool stochastic() const { return stochastic_; }

  /// The buffer of a variable, or of the shard or remote entry that it lives in.
  BufferId variable(TensorId id) const;
  /// Address of the block that holds `replica`'s value.
  std::byte* block(BufferId buffer, Replica replica) const;

  /// How often each stream moves on in one run, the most that any replica may see when branches
  /// differ.
  IdVector<StreamId, std::int64_t> stream_reads() const;
  /// Of one run: passes of the loops that are in no other loop and no branch; of a program without any, how
  /// often the stream moves on that does so most. 0 when there is neither.
  std::int64_t iterations() const { return iterations_; }
  /// One line an instruction: outputs, op, partition, blocks, bytes.
  std::string to_string() const;

 private:
  friend class PlanBuilder;
  void count_iterations();

  const Ir* ir_;
  LoweredProgram program_;
  Memory memory_;
  std::vector<Instruction> instructions_;
  bool stochastic_ = false;
  std::int64_t iterations_ = 0;
};

}  // namespace popsr
