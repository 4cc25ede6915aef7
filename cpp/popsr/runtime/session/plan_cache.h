// The plans of a session: one for each set of facts that a run may start with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_set>
#include <vector>

#include "popsr/analysis/partition_analysis.h"
#include "popsr/base/thread_pool.h"
#include "popsr/runtime/execution/executor.h"
#include "popsr/runtime/plan/plan.h"
#include "popsr/runtime/session/profile.h"
#include "popsr/runtime/session/rank_traffic.h"
#include "popsr/runtime/session/session_options.h"

namespace popsr {

/// Of a session with these options.
PlanOptions plan_options(const SessionOptions& options, const RankMap& ranks, const ChainTuning& chain);

/// The partitions that the facts of a run follow from.
struct PlanKey {
  std::vector<PartitionId> rows;   ///< Of the small streams.
  std::vector<PartitionId> start;  ///< Of the states.
  PiecesByInput pieces = {};       ///< Of those whose parts have facts of their own.
  bool operator==(const PlanKey&) const = default;
};

/// Facts of the states at a point of a run.
struct StateFacts {
  std::vector<PartitionId> whole = {};
  PiecesByInput pieces = {};  ///< Of those whose parts have facts of their own.
};

/// A plan with the facts that it was made for.
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
  std::unordered_set<BufferId> written;  ///< By some op.
  StateFacts entry = {};                 ///< When a run starts: the fixpoint.
  StateFacts last = {};                  ///< When it ends.
  bool is_acknowledged = false;
};

/// Facts of a program under assumptions; they keep the program.
std::shared_ptr<const PartitionAnalysis> owning_facts(std::shared_ptr<const Ir> ir, Assumptions assumptions);

/// Plans by their keys, with the variables in the current one. Plans that were not used for long are dropped.
class PlanCache {
 public:
  /// Compiles the first plan. `streams`: those that PlanKey::rows are of; `states`: variables and shards,
  /// then remote entries, that PlanKey::start is of. `link`: null without other ranks.
  PlanCache(std::shared_ptr<const Ir> ir, const SessionOptions& options, std::vector<StreamId> streams,
            std::vector<TensorId> states, std::shared_ptr<const PartitionAnalysis> facts, PlanKey key,
            RankLink* link);

  ThreadPool& pool() { return pool_; }
  CompiledPlan& current() const { return *plans_.front(); }
  /// True if the current plan is for these: see PlanKey.
  bool is_for(const std::vector<PartitionId>& rows, const std::vector<PartitionId>& start,
              const PiecesByInput& pieces) const {
    return fits(current(), rows, start, pieces);
  }
  /// Takes up the plan for a key, and moves the variables into it: a plan that was made for the key, or whose
  /// fixpoint starts with the same facts; else a new one.
  void switch_to(PlanKey key);
  /// Lets the current plan run: its instructions are made anew where variables got memory of their own.
  void make_ready();
  /// Counts of all plans, also of those that were dropped; without runs.
  SessionStats stats() const;
  /// Instructions of all plans, those that were dropped first; without the time of runs.
  Profile profile() const;
  /// Of all plans, also of those that were dropped.
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
  void drop_old();

  std::shared_ptr<const Ir> ir_;
  SessionOptions options_;
  RankLink* link_;
  ThreadPool pool_;
  std::vector<std::optional<SeedRule>> seeds_;  ///< By op, of the program when the session was made.
  std::vector<StreamId> streams_;
  std::vector<TensorId> states_;
  std::vector<std::unique_ptr<CompiledPlan>> plans_;  ///< The current one first, then by last use.
  SessionStats retired_;                              ///< Of plans that were dropped.
  Profile retired_profile_;
  RankTraffic retired_traffic_;
};

}  // namespace popsr
