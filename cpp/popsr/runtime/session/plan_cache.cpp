#include "popsr/runtime/session/plan_cache.h"

#include <algorithm>

#include "popsr/base/error.h"
#include "popsr/base/threads/deep_stack.h"
#include "popsr/ir/op_def.h"
#include "popsr/runtime/session/variable_io.h"

namespace popsr {
namespace {

/// Plans that are kept beside the current one: so many, and as long as they take no more memory together.
constexpr std::size_t kMaxPlans = 8;
constexpr std::size_t kMaxPlanBytes = std::size_t{64} << 20;

void count(const Plan& plan, SessionStats& stats) {
  const OpCounter add = [&](const Op* op, const ExecutionCounts& counts, std::uint64_t members) {
    const std::string name(op == nullptr ? "copy" : op->def->name);
    stats.kernel_calls[name] += counts.executions;
    stats.blocks[name] += counts.blocks * members;
  };
  with_deep_stack([&] { count_ops(plan.instructions(), add); });
}

int threads_of(const SessionOptions& options) {
  return options.num_threads == 0 ? default_threads() : options.num_threads;
}

}  // namespace

/// Facts that keep their program.
std::shared_ptr<const PartitionAnalysis> owning_facts(std::shared_ptr<const Ir> ir,
                                                      const SeedRules& seed_rules, Assumptions assumptions) {
  struct Both {
    std::shared_ptr<const Ir> ir;
    PartitionAnalysis facts;
  };
  const Ir& program = *ir;
  auto both =
      std::make_shared<Both>(std::move(ir), PartitionAnalysis(program, seed_rules, std::move(assumptions)));
  const PartitionAnalysis* const facts = &both->facts;
  return {std::move(both), facts};
}

PlanOptions plan_options(const SessionOptions& options, const RankMap& ranks, const ChainTuning& chain) {
  const bool checks = options.check > 0;
  return {.dedup = options.dedup && !checks,
          .share = options.optimise,
          .fuse = options.optimise && options.check < 1 && !options.check_floats,
          .unroll = !checks,
          .threads = threads_of(options),
          .clamp_scales = options.clamp_scales,
          .check_floats = options.check_floats,
          .ranks = ranks,
          .chain = chain};
}

PlanCache::PlanCache(std::shared_ptr<const Ir> ir, const SessionOptions& options,
                     std::vector<StreamId> streams, std::vector<TensorId> states,
                     std::shared_ptr<const PartitionAnalysis> facts, PlanKey key, RankLink* link)
    : ir_(std::move(ir)),
      options_(options),
      link_(link),
      pool_(threads_of(options)),
      streams_(std::move(streams)),
      states_(std::move(states)) {
  plans_.push_back(compile(std::move(facts), std::move(key)));
}

std::unique_ptr<CompiledPlan> PlanCache::compile(std::shared_ptr<const PartitionAnalysis> facts,
                                                 PlanKey key) {
  const PlanOptions plan =
      plan_options(options_, link_ == nullptr ? RankMap() : link_->map(ir_->replication()),
                   link_ == nullptr ? ChainTuning() : link_->tuning());
  auto made = std::make_unique<CompiledPlan>(std::move(facts), std::move(key), plan, pool_, options_.check,
                                             options_.profile, link_);
  const Context& main = made->facts->main();
  made->last.whole = main.end.inputs;
  made->last.whole.insert(
      made->last.whole.end(), main.end.remote.begin(),
      main.end.remote.begin() + static_cast<std::ptrdiff_t>(states_.size() - main.end.inputs.size()));
  for (const TensorId id : states_) made->entry.whole.push_back(made->facts->variable(id));
  made->entry.pieces = main.pieces;
  made->last.pieces = main.end.input_pieces;
  return made;
}

std::unique_ptr<CompiledPlan> PlanCache::compile(PlanKey key) {
  if (current().facts->epoch() != ir_->epoch()) {
    raise<GraphError>(
        "session: other replicas agree than when it was made, and the program changed since, got a program "
        "of another version, expected the session's; make the session again");
  }
  const SeedRules rules = current().facts->seed_rules();
  Assumptions assumptions;
  for (std::size_t i = 0; i < key.rows.size(); ++i) assumptions.rows[streams_[i]] = key.rows[i];
  for (std::size_t i = 0; i < key.start.size(); ++i) assumptions.start[states_[i]] = key.start[i];
  for (const auto& [i, pieces] : key.pieces) assumptions.start_pieces[states_[i]] = pieces;
  std::unique_ptr<CompiledPlan> made;
  with_deep_stack([&] { made = compile(owning_facts(ir_, rules, std::move(assumptions)), std::move(key)); });
  return made;
}

void PlanCache::switch_to(PlanKey key) {
  auto found = std::ranges::find_if(plans_, [&key](const std::unique_ptr<CompiledPlan>& each) {
    return fits(*each, key.rows, key.start, key.pieces);
  });
  if (found == plans_.begin()) return;
  if (found == plans_.end()) found = plans_.insert(plans_.end(), compile(std::move(key)));
  move_variables(current().plan, (*found)->plan);
  std::rotate(plans_.begin(), found, found + 1);
  if (!plans_[1]->has_run) drop(1);
  drop_old();
}

void PlanCache::make_ready() {
  Plan& plan = current().plan;
  if (!plan.is_outdated()) return;
  retire(plan);
  with_deep_stack([&plan] { plan.rebuild(); });
}

/// Keeps the counts of instructions that go.
void PlanCache::retire(const Plan& plan) {
  count(plan, retired_);
  if (options_.profile) add_instructions(*ir_, plan, retired_profile_);
  if (link_ != nullptr) add_traffic(plan, retired_traffic_);
}

void PlanCache::drop(std::size_t index) {
  retire(plans_[index]->plan);
  plans_.erase(plans_.begin() + static_cast<std::ptrdiff_t>(index));
}

void PlanCache::drop_old() {
  std::size_t bytes = 0;
  for (std::size_t i = 1; i < plans_.size(); ++i) {
    bytes += plans_[i]->bytes();
    if (i < kMaxPlans && bytes <= kMaxPlanBytes) continue;
    while (plans_.size() > i) drop(i);
  }
}

SessionStats PlanCache::stats() const {
  SessionStats stats = retired_;
  for (const auto& each : plans_) count(each->plan, stats);
  return stats;
}

Profile PlanCache::profile() const {
  Profile profile = retired_profile_;
  for (const auto& each : plans_) add_instructions(*ir_, each->plan, profile);
  return profile;
}

RankTraffic PlanCache::traffic() const {
  RankTraffic traffic = retired_traffic_;
  for (const auto& each : plans_) add_traffic(each->plan, traffic);
  return traffic;
}

}  // namespace popsr
