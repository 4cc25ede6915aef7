// Runs the instructions of a plan.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "popsr/ir/eval.h"
#include "popsr/runtime/check/claims.h"
#include "popsr/runtime/execution/execution_mask.h"
#include "popsr/runtime/execution/run_watch.h"
#include "popsr/runtime/plan/plan.h"

namespace popsr {

class Executor {
 public:
  /// `check`: the share of instructions whose claims are compared after they ran.
  Executor(const PartitionAnalysis& facts, Plan& plan, ThreadPool& pool, double check);

  /// One run of the program. Noise depends on (seed, step) and the instruction's place only.
  void run(std::uint64_t seed, std::uint64_t step, HostIo& io, RunWatcher* watcher = nullptr);
  /// Ends the run that is in progress between two instructions, by a StoppedError: from any thread.
  void stop() { stopped_.store(true, std::memory_order_relaxed); }
  bool is_stopped() const { return stopped_.load(std::memory_order_relaxed); }
  /// Before a run: it is not ended by what called stop() earlier.
  void forget_stop() { stopped_.store(false, std::memory_order_relaxed); }
  /// Iterations (Plan::iterations) that the last run ended, or the one that is in progress.
  std::int64_t iterated() const { return iterated_; }
  /// "stopped after 3 of 10 iterations", of that run.
  std::string stopped_text() const;

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
  void report(const Instruction& instruction) {
    if (instruction.iterations == 0) return;
    iterated_ += instruction.iterations;
    if (watcher_ != nullptr) watcher_->iterated(instruction.iterations);
  }
  /// Before each instruction: may end the run.
  void poll(bool heavy) {
    if (stopped_.load(std::memory_order_relaxed)) [[unlikely]]
      raise_stopped();
    if (timer_.is_time(heavy) && watcher_ != nullptr) watcher_->look();
  }
  [[noreturn]] void raise_stopped() const;
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
  std::vector<kernels::NoiseKey> path_keys_;  ///< By PathId.
  std::vector<std::uint64_t> iterations_;     ///< By PathId of iteration nodes.
  const Branch* branch_ = nullptr;            ///< Null while all replicas take part.
  // Of this run.
  RunWatcher* watcher_ = nullptr;
  LookTimer timer_;
  std::int64_t iterated_ = 0;
  std::atomic<bool> stopped_{false};
  const Op* failed_ = nullptr;
  // Operands of a part of a run.
  std::vector<const std::byte*> in_;
  std::vector<std::byte*> out_;
  std::vector<const kernels::NoiseKey*> noise_;
  std::vector<FoldFactors> factors_;  ///< Of each product of a block.
};

}  // namespace popsr
