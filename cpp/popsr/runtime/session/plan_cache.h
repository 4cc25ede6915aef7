// Plans of a session: one for each set of facts that a run may start with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_set>
#include <vector>

#include "popsr/analysis/partition_analysis.h"
#include "popsr/base/threads/thread_pool.h"
#include "popsr/runtime/execution/executor.h"
#include "popsr/runtime/plan/plan.h"
#include "popsr/runtime/session/profile.h"
#include "popsr/runtime/session/rank_traffic.h"
#include "popsr/runtime/session/session_options.h"

namespace popsr {

/// Plan options of a session with these session options.
PlanOptions plan_options(const SessionOptions& options, const RankMap& ranks, const ChainTuning& chain);

/// Partitions that determine the facts of a run, and so its plan.
struct PlanKey {
  std::vector<PartitionId> rows;   ///< Partition of the rows of each small stream.
  std::vector<PartitionId> start;  ///< Partition of each state at the start of the run.
  PiecesByInput pieces = {};       ///< Partitions by part, for states whose parts have facts of their own.
  bool operator==(const PlanKey&) const = default;
};

/// Facts of the states at one point of a run.
struct StateFacts {
  std::vector<PartitionId> whole = {};
  PiecesByInput pieces = {};  ///< Facts by part, for states whose parts have facts of their own.
};

/// A plan, its executor, and the facts that it was compiled for.
struct CompiledPlan {
  CompiledPlan(std::shared_ptr<const PartitionAnalysis> given, PlanKey its_key, const PlanOptions& options,
               ThreadPool& pool, double check, bool profile, RankLink* link)
      : facts(std::move(given)),
        key(std::move(its_key)),
        plan(*facts, options),
        executor(*facts, plan, pool, check, profile, link),
        reads(plan.stream_reads()) {
    for_each_op(plan.program().ops,
                [this](const LoweredOp& op) { written.insert(op.out.begin(), op.out.end()); });
  }
  std::size_t bytes() const {
    return plan.memory().variables + plan.memory().constants + plan.memory().activations;
  }

  std::shared_ptr<const PartitionAnalysis> facts;
  PlanKey key;
  Plan plan;
  Executor executor;
  IdVector<StreamId, std::int64_t> reads;
  std::unordered_set<BufferId> written;  ///< Buffers that some op writes.
  StateFacts entry = {};                 ///< Facts of the states when a run starts: the fixpoint.
  StateFacts last = {};                  ///< Facts of the states when a run ends.
  bool is_acknowledged = false, has_run = false;
};

/// Facts of a program under assumptions; the result owns the program.
std::shared_ptr<const PartitionAnalysis> owning_facts(std::shared_ptr<const Ir> ir,
                                                      const SeedRules& seed_rules, Assumptions assumptions);

/// Plans by key; the current plan holds the variables. Plans that were not used for long are dropped, and
/// those that another one replaces before they ran: a session's first, which is for equal rows, seldom comes
/// back.
class PlanCache {
 public:
  /// Compiles the first plan. `streams`: the small streams, in the order of PlanKey::rows; `states`:
  /// variables and shards, then remote entries, in the order of PlanKey::start. `link`: null without other
  /// ranks.
  PlanCache(std::shared_ptr<const Ir> ir, const SessionOptions& options, std::vector<StreamId> streams,
            std::vector<TensorId> states, std::shared_ptr<const PartitionAnalysis> facts, PlanKey key,
            RankLink* link);

  ThreadPool& pool() { return pool_; }
  CompiledPlan& current() const { return *plans_.front(); }
  /// True if the current plan was compiled for these facts (PlanKey).
  bool is_for(const std::vector<PartitionId>& rows, const std::vector<PartitionId>& start,
              const PiecesByInput& pieces) const {
    return fits(current(), rows, start, pieces);
  }
  /// Makes the plan for a key current and moves the variables into it: an existing plan that was made for
  /// the key or whose fixpoint starts with the same facts, otherwise a new one.
  void switch_to(PlanKey key);
  /// Prepares the current plan for a run: rebuilds its instructions if variables got memory of their own.
  void make_ready();
  /// Counters of all plans, dropped ones included; `runs` is not set.
  SessionStats stats() const;
  /// Instructions of all plans, dropped ones first; the total time of runs is not set.
  Profile profile() const;
  /// Messages of all plans, dropped ones included, by op.
  RankTraffic traffic() const;

 private:
  std::unique_ptr<CompiledPlan> compile(std::shared_ptr<const PartitionAnalysis> facts, PlanKey key);
  std::unique_ptr<CompiledPlan> compile(PlanKey key);
  static bool fits(const CompiledPlan& plan, const std::vector<PartitionId>& rows,
                   const std::vector<PartitionId>& start, const PiecesByInput& pieces) {
    if (plan.key.rows != rows) return false;
    const bool starts = plan.key.start == start && plan.key.pieces == pieces;
    return starts || (plan.entry.whole == start && plan.entry.pieces == pieces);
  }
  void retire(const Plan& plan);
  void drop(std::size_t index);
  void drop_old();

  std::shared_ptr<const Ir> ir_;
  SessionOptions options_;
  RankLink* link_;
  ThreadPool pool_;
  std::vector<StreamId> streams_;
  std::vector<TensorId> states_;
  std::vector<std::unique_ptr<CompiledPlan>> plans_;  ///< Plans; the current one first, then by last use.
  SessionStats retired_;                              ///< Counters of dropped plans.
  Profile retired_profile_;
  RankTraffic retired_traffic_;
};

}  // namespace popsr
