// Runs the instructions of a plan.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <vector>

#include "popsr/base/threads/thread_pool.h"
#include "popsr/exec/host_io.h"
#include "popsr/exec/invalid_labels.h"
#include "popsr/runtime/check/claims.h"
#include "popsr/runtime/execution/execution_mask.h"
#include "popsr/runtime/execution/run_stops.h"
#include "popsr/runtime/execution/run_watch.h"
#include "popsr/runtime/plan/plan.h"
#include "popsr/runtime/ranks/block_exchange.h"
#include "popsr/runtime/ranks/rank_link.h"

namespace popsr {

class RunObservers;

class Executor {
 public:
  /// Makes an executor. `check`: share of instructions whose claims are compared after they ran. `profile`:
  /// times each instruction. `link`: connection to the other ranks; null if there are none.
  Executor(const PartitionAnalysis& facts, Plan& plan, ThreadPool& pool, double check, bool profile,
           RankLink* link = nullptr);

  /// Runs the program once. Noise depends on (seed, step) and the instruction's position only. `number`: of
  /// the run; once `stops` stops it, it ends between two instructions, with a StoppedError.
  void run(std::uint64_t seed, std::uint64_t step, HostIo& io, const RunStops& stops, std::uint64_t number,
           RunWatcher* watcher = nullptr);
  /// Registers `observers` for the instructions of further runs; null if there are none.
  void observe(RunObservers* observers) { observers_ = observers; }
  /// Iterations (Plan::iterations) that the last or current run has completed.
  std::int64_t iterated() const { return iterated_; }
  /// Text such as "stopped after 3 of 10 iterations", of the last run.
  std::string stopped_text() const;

  /// Op that the last run failed at with an Error; null if it did not fail, or not at an op.
  const Op* failed() const { return failed_; }
  void clear_failure() { failed_ = nullptr; }

  // Functions for the instructions, while they run.

  /// Runs the instructions of a body in order.
  void run(std::vector<Instruction>& instructions);
  /// Runs the instructions of a branch of `conditional`, on the replicas that take it.
  void run_masked(std::vector<Instruction>& branch, const Op& conditional,
                  const std::vector<std::uint8_t>& takes_branch);
  /// Completes an instruction: copies, counters and checks after it ran.
  void finish(Instruction& instruction);
  /// Derives the keys of paths path..end-1 for iteration `i` of the loop at `path`.
  void start_iteration(PathId path, PathId end, std::uint64_t i);
  void report(const Instruction& instruction) {
    if (instruction.iterations == 0) return;
    iterated_ += instruction.iterations;
    if (watcher_ != nullptr) watcher_->iterated(instruction.iterations);
  }
  /// Checks, before each instruction, whether the run should end; throws if so.
  void poll(std::size_t bytes) {
    if (stops_->is_stopped(number_)) [[unlikely]]
      raise_stopped();
    if (timer_.is_time(bytes >= PollTimer::kHeavy) && watcher_ != nullptr) watcher_->poll();
  }
  /// Receives the blocks that this rank lacks. All ranks run the same instructions in the same order, if
  /// need be on none of their replicas, so all call this or learn here that one of them failed before.
  void exchange(BlockExchange& exchange) {
    if (exchange.is_needed) exchange_with_ranks(exchange);
  }
  /// Runs an all-reduce in which all ranks take part as a chain.
  void run_chain(RankChain& chain, const NoiseKeys& noise);
  /// Throws if some members of a group do not take part; `leaders` is as in popsr::check_groups.
  void check_groups(const Instruction& instruction, std::span<const Replica> leaders) const;
  void derive_keys(const Instruction& instruction, NoiseKeys& noise) const;
  /// Derives keys[b], the key of replicas[b], from `key`.
  void derive_keys(kernels::NoiseKey key, std::span<const Replica> replicas,
                   std::span<kernels::NoiseKey> keys) const;
  kernels::NoiseKey output_key(PathId path, const Op& op, std::size_t output) const;

  ActiveReplicas active() const { return active_replicas(mask_); }
  const Ir& ir() const { return facts_.ir(); }
  ThreadPool& pool() { return pool_; }
  ThreadPool& serial() { return serial_; }  ///< Pool of one thread, for kernels that run beside each other.
  HostIo& io() { return *io_; }

 private:
  void run_one(Instruction& instruction);
  void run_watched(Instruction& instruction);
  void run_timed(Instruction& instruction);
  [[noreturn]] void raise_stopped() const;
  void exchange_with_ranks(BlockExchange& exchange);
  void agree_with_ranks();
  void share_failure(const std::exception_ptr& error);
  void derive_paths(PathId begin, PathId end);

  const PartitionAnalysis& facts_;
  Plan& plan_;
  ThreadPool& pool_;
  ThreadPool serial_{1};
  const kernels::KernelTable& kernels_;
  RankLink* link_;
  Sampler check_;
  bool profile_;
  RunObservers* observers_ = nullptr;
  ClaimRanks claim_ranks_;
  IdVector<PathId, kernels::NoiseKey> path_keys_;
  IdVector<PathId, std::uint64_t> iterations_;  ///< Current iteration, by path node of a loop iteration.
  // State of the current run.
  /// Mask of the innermost branch; null while all replicas take part.
  const ExecutionMask* mask_ = nullptr;
  HostIo* io_ = nullptr;
  const RunStops* stops_ = nullptr;
  std::uint64_t number_ = 0;
  RunWatcher* watcher_ = nullptr;
  PollTimer timer_;
  std::int64_t iterated_ = 0;
  std::uint64_t executed_ = 0;  ///< Instructions executed, including the ones of bodies.
  const Op* failed_ = nullptr;
};

/// Collector of the instruction's invalid labels; null when its op takes no labels, or they were reported.
inline InvalidLabels* invalid_labels_of(const Instruction& instruction) {
  InvalidLabels* const invalid_labels = instruction.checks.invalid_labels.get();
  return invalid_labels == nullptr || invalid_labels->is_reported ? nullptr : invalid_labels;
}

}  // namespace popsr
