// One instruction of a plan: an op with its kernels, block structure and addresses, as one of several kinds.
//
// A kind has a file of its own with its data and its functions: build_<kind>() makes it from a lowered op,
// prepare() derives noise keys and checks execution masks, execute() runs it, describe() names it in a
// printed plan. They are called through std::visit, so that a kind without one of them does not compile.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "popsr/exec/host_io.h"
#include "popsr/exec/invalid_labels.h"
#include "popsr/runtime/check/finite_check.h"
#include "popsr/runtime/instructions/collective_call.h"
#include "popsr/runtime/instructions/conditional.h"
#include "popsr/runtime/instructions/copy_blocks.h"
#include "popsr/runtime/instructions/fused_accumulation.h"
#include "popsr/runtime/instructions/fused_product.h"
#include "popsr/runtime/instructions/kernel_run.h"
#include "popsr/runtime/instructions/loop.h"
#include "popsr/runtime/instructions/merged_run.h"
#include "popsr/runtime/instructions/operands.h"
#include "popsr/runtime/instructions/sliced.h"

namespace popsr {

/// Postcondition of an instruction: output `output` is equal on all replicas of each block of `fact`.
struct Claim {
  BufferId buffer = kNone;
  std::size_t output = 0;
  PartitionId fact = {};
  /// View of the buffer that is the output; null if it is the whole buffer.
  const StridedView* view = nullptr;
};

/// Comparisons after an instruction ran.
struct Checks {
  /// Collector of invalid labels, for ops with NumericAspect::labels.
  std::unique_ptr<InvalidLabels> invalid_labels = {};
  std::unique_ptr<FiniteCheck> finite = {};  ///< Check of finite results, with PlanOptions::check_floats.
  std::vector<Claim> claims = {};
};

struct ExecutionCounts {
  std::uint64_t executions = 0;
  std::uint64_t blocks = 0;          ///< Blocks computed in all executions.
  std::chrono::nanoseconds time{0};  ///< Time of all executions, in sessions with a profile.
};

struct Instruction {
  using Work = std::variant<KernelRun, CollectiveCall, FusedProduct, FusedAccumulation, CopyBlocks, Loop,
                            Merged, Sliced, Conditional>;

  const Op* op = nullptr;  ///< Op of the instruction; null for copies.
  PathId path = {};
  std::size_t bytes = 0;    ///< Bytes of its operands and results in one execution.
  std::int64_t blocks = 0;  ///< Blocks computed in one execution.
  /// Iterations of the program that one pass of a loop, or one execution of another instruction, completes.
  std::int64_t iterations = 0;
  /// Smallest replica of each block, whose mask decides for the block; set inside conditionals.
  std::vector<Replica> replicas = {};
  Work work = {};
  /// Copies after the kernel, for storage that is finer than the fact.
  std::vector<BlockCopy> copies = {};
  Checks checks = {};
  ExecutionCounts counts = {};
};

/// Name of the instruction in a printed plan: "add", "matmul+accumulate_", "copy"; for loops and
/// conditionals the line before their bodies.
std::string describe(const Ir& ir, const Instruction& instruction);

/// Derives noise keys and reads the operands of a FiniteCheck. Throws ReplicaError if some members of a
/// group do not take part; nothing of the instruction has run then.
void prepare(Instruction& instruction, Executor& executor);
void execute(Instruction& instruction, Executor& executor);

/// Number of blocks of one execution in which these replicas take part.
std::int64_t active_blocks(const Instruction& instruction, ActiveReplicas active);

/// Adds the number of transfers of each stream, by StreamId, for `times` executions of the instructions.
void count_streams(std::span<const Instruction> instructions, std::int64_t times,
                   IdVector<StreamId, std::int64_t>& reads);

/// Callback for the ops that an instruction has run: `members` ops per block of `counts`. The op is null
/// for a copy.
using OpCounter = std::function<void(const Op* op, const ExecutionCounts& counts, std::uint64_t members)>;
void count_ops(std::span<const Instruction> instructions, const OpCounter& count);

/// Calls visit(instructions) for each body.
template <class Visit>
void for_each_body(const Instruction& instruction, const Visit& visit) {
  if (const auto* loop = std::get_if<Loop>(&instruction.work)) visit(loop->body);
  if (const auto* merged = std::get_if<Merged>(&instruction.work)) visit(merged->parts);
  if (const auto* sliced = std::get_if<Sliced>(&instruction.work)) visit(sliced->parts);
  if (const auto* conditional = std::get_if<Conditional>(&instruction.work)) {
    visit(conditional->then_body);
    visit(conditional->else_body);
  }
}

}  // namespace popsr
