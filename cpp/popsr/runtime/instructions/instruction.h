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

/// A postcondition of an instruction: output `output` is equal in all replicas of each block of `fact`.
struct Claim {
  BufferId buffer = kNone;
  std::size_t output = 0;
  PartitionId fact = {};
  const StridedView* view = nullptr;  ///< The output as a view of the buffer; null when it is all of it.
};

/// Comparisons after an instruction.
struct Checks {
  std::unique_ptr<InvalidLabels> invalid_labels = {};  ///< Of ops with NumericAspect::labels.
  std::unique_ptr<FiniteCheck> finite = {};            ///< With PlanOptions::check_floats.
  std::vector<Claim> claims = {};
};

struct ExecutionCounts {
  std::uint64_t executions = 0;
  std::uint64_t blocks = 0;          ///< Computed in all of them.
  std::chrono::nanoseconds time{0};  ///< Of all of them, in sessions with a profile.
};

struct Instruction {
  using Work = std::variant<KernelRun, CollectiveCall, FusedProduct, FusedAccumulation, CopyBlocks, Loop,
                            Merged, Sliced, Conditional>;

  const Op* op = nullptr;  ///< Null for copies.
  PathId path = {};
  std::size_t bytes = 0;    ///< Of its operands and results, in one execution.
  std::int64_t blocks = 0;  ///< Computed by one execution.
  /// Iterations of the program that one pass of a loop, or one execution of another instruction, finishes.
  std::int64_t iterations = 0;
  std::vector<Replica> replicas = {};  ///< In conditionals: smallest of each block, which decides for it.
  Work work = {};
  std::vector<BlockCopy> copies = {};  ///< After the work: for storage that is finer than the fact.
  Checks checks = {};
  ExecutionCounts counts = {};
};

/// The kind's name in a printed plan: "add", "matmul+accumulate_", "copy"; of loops and conditionals the line
/// before their bodies.
std::string describe(const Ir& ir, const Instruction& instruction);

/// Derives noise keys, and reads the operands of a FiniteCheck. Throws ReplicaError when some members of a
/// group do not take part; nothing of the instruction has run then.
void prepare(Instruction& instruction, Executor& executor);
void execute(Instruction& instruction, Executor& executor);

/// Blocks of one execution in which these replicas take part.
std::int64_t active_blocks(const Instruction& instruction, ActiveReplicas active);

/// Adds how often each stream moves on, by StreamId, when the instructions run `times` times.
void count_streams(std::span<const Instruction> instructions, std::int64_t times,
                   IdVector<StreamId, std::int64_t>& reads);

/// The ops that an instruction has run, `members` times for each block of its counts. Null for a copy.
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
