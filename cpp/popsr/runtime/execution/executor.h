// Runs the instructions of a plan.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <vector>

#include "popsr/base/thread_pool.h"
#include "popsr/exec/host_io.h"
#include "popsr/exec/invalid_labels.h"
#include "popsr/runtime/check/claims.h"
#include "popsr/runtime/execution/execution_mask.h"
#include "popsr/runtime/execution/run_watch.h"
#include "popsr/runtime/plan/plan.h"
#include "popsr/runtime/ranks/block_exchange.h"
#include "popsr/runtime/ranks/rank_link.h"

namespace popsr {

class RunObserver;

class Executor {
 public:
  /// `check`: the share of instructions whose claims are compared after they ran. `profile`: times each
  /// instruction. `link`: to the other ranks; null when there are none.
  Executor(const PartitionAnalysis& facts, Plan& plan, ThreadPool& pool, double check, bool profile,
           RankLink* link = nullptr);

  /// One run of the program. Noise depends on (seed, step) and the instruction's position only.
  void run(std::uint64_t seed, std::uint64_t step, HostIo& io, RunWatcher* watcher = nullptr);
  /// Ends the run that is in progress between two instructions, by a StoppedError: from any thread.
  void stop() { stopped_.store(true, std::memory_order_relaxed); }
  /// Tells `observer` of the instructions of further runs; null ends that.
  void observe(RunObserver* observer) { observer_ = observer; }
  bool is_stopped() const { return stopped_.load(std::memory_order_relaxed); }
  /// Before a run: an earlier stop() does not end it.
  void clear_stop() { stopped_.store(false, std::memory_order_relaxed); }
  /// Iterations (Plan::iterations) that the last run ended, or the one that is in progress.
  std::int64_t iterated() const { return iterated_; }
  /// "stopped after 3 of 10 iterations", of that run.
  std::string stopped_text() const;

  /// The op that the last run failed at with an Error; null when it did not, or at no op.
  const Op* failed() const { return failed_; }
  void clear_failure() { failed_ = nullptr; }

  // For the instructions, while they run.

  /// The instructions of a body, in order.
  void run(std::vector<Instruction>& instructions);
  /// The instructions of a branch of `conditional`, on the replicas that take it.
  void run_masked(std::vector<Instruction>& branch, const Op& conditional,
                  const std::vector<std::uint8_t>& takes_branch);
  /// After an instruction ran: its copies, counts and checks.
  void finish(Instruction& instruction);
  /// Derives the keys of paths path..end-1 for iteration `i` of the loop at `path`.
  void start_iteration(PathId path, PathId end, std::uint64_t i);
  void report(const Instruction& instruction) {
    if (instruction.iterations == 0) return;
    iterated_ += instruction.iterations;
    if (watcher_ != nullptr) watcher_->iterated(instruction.iterations);
  }
  /// Before each instruction: may end the run.
  void poll(std::size_t bytes) {
    if (stopped_.load(std::memory_order_relaxed)) [[unlikely]]
      raise_stopped();
    if (timer_.is_time(bytes >= PollTimer::kHeavy) && watcher_ != nullptr) watcher_->poll();
  }
  /// Brings the blocks that ranks lack. All ranks run the same instructions in the same order, if need be on
  /// none of their replicas, so all come here or learn here that one of them failed before.
  void exchange(BlockExchange& exchange) {
    if (exchange.is_needed) exchange_with_ranks(exchange);
  }
  /// All ranks reduce in a chain.
  void run_chain(RankChain& chain, const NoiseKeys& noise);
  /// Throws when some members of a group do not take part; `leaders` as in popsr::check_groups.
  void check_groups(const Instruction& instruction, std::span<const Replica> leaders) const;
  void derive_keys(const Instruction& instruction, NoiseKeys& noise) const;
  /// keys[b] = the key of replicas[b] under `key`.
  void derive_keys(kernels::NoiseKey key, std::span<const Replica> replicas,
                   std::span<kernels::NoiseKey> keys) const;
  kernels::NoiseKey output_key(PathId path, const Op& op, std::size_t output) const;

  ActiveReplicas active() const { return active_replicas(mask_); }
  const Ir& ir() const { return facts_.ir(); }
  ThreadPool& pool() { return pool_; }
  ThreadPool& serial() { return serial_; }  ///< For kernels that run beside each other.
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
  RunObserver* observer_ = nullptr;
  ClaimRanks claim_ranks_;
  IdVector<PathId, kernels::NoiseKey> path_keys_;
  IdVector<PathId, std::uint64_t> iterations_;  ///< Of iteration nodes.
  // Of this run.
  const ExecutionMask* mask_ = nullptr;  ///< Null while all replicas take part.
  HostIo* io_ = nullptr;
  RunWatcher* watcher_ = nullptr;
  PollTimer timer_;
  std::int64_t iterated_ = 0;
  std::uint64_t executed_ = 0;  ///< Instructions, also those of bodies.
  std::atomic<bool> stopped_{false};
  const Op* failed_ = nullptr;
};

/// The list of stray labels of the instruction; null when its op takes no labels, or the host knows.
inline InvalidLabels* invalid_labels_of(const Instruction& instruction) {
  InvalidLabels* const invalid_labels = instruction.checks.invalid_labels.get();
  return invalid_labels == nullptr || invalid_labels->is_reported ? nullptr : invalid_labels;
}

}  // namespace popsr
