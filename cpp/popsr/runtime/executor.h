// Runs the instructions of a plan.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "popsr/ir/eval.h"
#include "popsr/runtime/branches.h"
#include "popsr/runtime/claims.h"
#include "popsr/runtime/plan.h"

namespace popsr {

class Executor {
 public:
  /// `check`: the share of instructions whose claims are compared after they ran.
  Executor(const PartitionAnalysis& facts, Plan& plan, ThreadPool& pool, double check);

  /// One run of the program. Noise depends on (seed, step) and the instruction's place only. `done`, unless
  /// it is empty, is told on this thread how many iterations (Plan::iterations) have just ended; what it
  /// throws ends the run.
  void run(std::uint64_t seed, std::uint64_t step, HostIo& io,
           const std::function<void(std::int64_t)>& done = {});

  /// The op that the last run failed at with an Error; null when it did not, or at no op.
  const Op* failed() const { return failed_; }
  void forget_failure() { failed_ = nullptr; }

 private:
  void run(std::vector<Instruction>& instructions, HostIo& io);
  void run_one(const Instruction& instruction, HostIo& io);
  void run_merged(Instruction& merged, HostIo& io);
  void check_taking_part(const Instruction& instruction) const;
  /// Copies what spreads, counts, checks.
  void finish(Instruction& instruction, HostIo& io);
  void run_loop_or_op(Instruction& instruction, HostIo& io);
  void run_kernel(const Instruction& instruction);
  void run_blocks(const Instruction& instruction, const BoundRun& run, std::int64_t begin, std::int64_t end);
  void run_exchange(const Instruction& instruction, HostIo& io, ThreadPool& pool);
  void run_product(const Instruction& instruction, HostIo& io);
  void run_steps(const Instruction& instruction, std::size_t block);
  void run_loop(Instruction& instruction, HostIo& io);
  void run_conditional(Instruction& instruction, HostIo& io);
  void report(const Instruction& instruction) const {
    if (instruction.iterations != 0 && done_ != nullptr) (*done_)(instruction.iterations);
  }
  ActiveReplicas active() const { return active_replicas(branch_); }
  std::int64_t active_blocks(const Instruction& instruction) const;
  void make_paths(PathId begin, PathId end);
  void make_keys(Instruction& instruction);
  kernels::NoiseKey output_key(PathId path, const Op& op, std::size_t output) const;

  const PartitionAnalysis& facts_;
  Plan& plan_;
  ThreadPool& pool_;
  ThreadPool serial_{1};  ///< For kernels that run beside each other.
  const kernels::KernelTable& kernels_;
  Sampler check_;
  std::vector<kernels::NoiseKey> path_keys_;                 ///< By PathId.
  std::vector<std::uint64_t> iterations_;                    ///< By PathId of iteration nodes.
  const Branch* branch_ = nullptr;                           ///< Null while all replicas take part.
  const std::function<void(std::int64_t)>* done_ = nullptr;  ///< Of this run; null when nobody listens.
  const Op* failed_ = nullptr;
  // Operands of a part of a run.
  std::vector<const std::byte*> in_;
  std::vector<std::byte*> out_;
  std::vector<const kernels::NoiseKey*> noise_;
  std::vector<FoldFactors> factors_;  ///< Of each product of a block.
};

}  // namespace popsr
