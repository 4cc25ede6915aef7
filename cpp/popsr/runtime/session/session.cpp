#include "popsr/runtime/session/session.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "popsr/analysis/explain/explanation.h"
#include "popsr/base/deep_stack.h"
#include "popsr/base/error.h"
#include "popsr/ir/op_def.h"
#include "popsr/ir/verify.h"
#include "popsr/runtime/check/stray_labels.h"
#include "popsr/runtime/execution/executor.h"

namespace popsr {
namespace {

void add_stats(const std::vector<Instruction>& instructions, SessionStats& stats) {
  const auto count = [&stats](std::string_view name, const Instruction& instruction,
                              std::uint64_t members = 1) {
    stats.kernel_calls[std::string(name)] += instruction.executions;
    stats.blocks[std::string(name)] += instruction.computed * members;
  };
  for (const Instruction& instruction : instructions) {
    if (instruction.kind == Instruction::Kind::kLoop || instruction.kind == Instruction::Kind::kConditional) {
      add_stats(instruction.body, stats);
      add_stats(instruction.else_body, stats);
      continue;
    }
    for (const Instruction& part : instruction.body) {
      if (part.product) count(part.product->def->name, part);
    }
    for (const BoundStep& step : instruction.steps) {
      const std::uint64_t members = instruction.stepped.front().start.size();
      count(step.op->def->name, instruction, members);
      count(step.product->def->name, instruction, members);
    }
    if (!instruction.steps.empty() && instruction.sink->target) continue;  // the last step is the op
    count(instruction.op ? instruction.op->def->name : "copy", instruction);
    if (instruction.steps.empty() && instruction.product) count(instruction.product->def->name, instruction);
  }
}

std::vector<std::optional<SeedRule>> seed_rules(const Ir& ir) {
  std::vector<std::optional<SeedRule>> rules;
  for (const OpId id : ids<OpId>(ir.num_ops())) rules.push_back(ir.op(id).seeds);
  return rules;
}

}  // namespace

/// The facts of a run follow from these partitions.
struct Session::Key {
  std::vector<PartitionId> rows;   ///< Of State::small.
  std::vector<PartitionId> start;  ///< Of State::states.
  bool operator==(const Key&) const = default;
};

/// A plan with the facts that it was made for.
struct Session::Compiled {
  Compiled(std::shared_ptr<const PartitionAnalysis> given, Key its_key, const PlanOptions& options,
           ThreadPool& pool, double check)
      : facts(std::move(given)),
        key(std::move(its_key)),
        plan(*facts, options),
        executor(*facts, plan, pool, check),
        reads(plan.stream_reads()) {
    for_each_op(plan.program().ops,
                [this](const LoweredOp& op) { written.insert(op.out.begin(), op.out.end()); });
  }
  std::size_t bytes() const {
    return plan.memory().variables + plan.memory().constants + plan.memory().activations;
  }

  std::shared_ptr<const PartitionAnalysis> facts;
  Key key;
  Plan plan;
  Executor executor;
  IdVector<StreamId, std::int64_t> reads;
  std::unordered_set<BufferId> written;  ///< Also kNone, where an output is not kept.
  std::vector<PartitionId> entry = {};   ///< Facts of State::states when a run starts: the fixpoint.
  std::vector<PartitionId> last = {};    ///< And when it ends.
  bool approved = false;
};

struct Session::State {
  State(const Ir& ir, const SessionOptions& given, int threads)
      : options(given), pool(threads), groups(ir), seeds(seed_rules(ir)) {}
  SessionOptions options;
  ThreadPool pool;
  RowGroups groups;
  std::vector<std::optional<SeedRule>> seeds;  ///< By op, as the session was made with.
  std::vector<StreamId> small, large;  ///< Streams with a row per replica; of `large` those equal so far.
  std::vector<TensorId> states;        ///< Variables and shards, then remote entries.
  std::unordered_map<TensorId, std::size_t> index;  ///< Into `states`.
  std::vector<PartitionId> start;  ///< Replicas that hold the same when the next run starts, by `states`.
  std::vector<PartitionId> home;   ///< What the host wrote last: the most that `start` may be.
  std::vector<PartitionId> told;   ///< Key::rows of the run before; empty before the first.
  std::vector<std::unique_ptr<Compiled>> plans;  ///< The current one first, then by last use.
  SessionStats retired;                          ///< Of plans that were dropped.
  std::vector<std::int64_t> positions;
  std::unordered_set<OpId> stray;  ///< Ops whose stray labels the host was told of.
  std::uint64_t runs = 0;
  bool is_whole = true;  ///< False after a run that ended in its middle: `start` is not known.
};

namespace {

/// Plans that are kept beside the current one: so many, and as long as they take no more memory together.
constexpr std::size_t kMaxPlans = 8;
constexpr std::size_t kMaxPlanBytes = std::size_t{64} << 20;

/// The tensor that holds a variable's value: the variable itself, a shard or a remote entry.
TensorId holder(const Ir& ir, TensorId variable) {
  const TensorId home = ir.tensor(variable).home;
  return home == kNone ? variable : home;
}

/// A stream with a row of its own for each replica, of a size that is worth comparing by default.
bool is_small(const Stream& stream) { return num_elements(stream.type.shape) <= kSmallStream; }

/// Replicas that start with the same rows of a variable that is not sharded.
PartitionId equal_rows_of(const Ir& ir, const RowGroups& groups, TensorId variable, HostRows rows,
                          const std::byte* data) {
  const Tensor& tensor = ir.tensor(variable);
  if (tensor.shard_over > 1) return declared_fact(ir, holder(ir, variable));
  PartitionTable& table = ir.partitions();
  const PartitionId given = rows == HostRows::kReplicas ? table.bottom() : tensor.grouping->partition(table);
  const std::size_t bytes = bytes_of(tensor.type);
  return groups.equal(given, [&](Replica r, Replica s) {
    const std::span<const std::uint32_t> row = table.labels(given);
    return row[r] == row[s] || same_bytes(data + row[r] * bytes, data + row[s] * bytes, bytes);
  });
}

/// Facts that keep their program.
std::shared_ptr<const PartitionAnalysis> keeping_facts(std::shared_ptr<const Ir> ir,
                                                       Assumptions assumptions) {
  struct Both {
    std::shared_ptr<const Ir> ir;
    PartitionAnalysis facts;
  };
  const Ir& program = *ir;
  auto both = std::make_shared<Both>(std::move(ir), PartitionAnalysis(program, std::move(assumptions)));
  const PartitionAnalysis* const facts = &both->facts;
  return {std::move(both), facts};
}

}  // namespace

Assumptions initial_assumptions(const Ir& ir) {
  Assumptions result;
  const RowGroups groups(ir);
  for (const StreamId id : ids<StreamId>(ir.num_streams())) {
    const Stream& stream = ir.stream(id);
    if (stream.to_device && stream.mode == StreamMode::kReplicate && is_small(stream)) {
      result.rows[id] = ir.partitions().top();
    }
  }
  for (const TensorId id : ir.graph(kMainGraph).tensors) {
    const Tensor& tensor = ir.tensor(id);
    if (tensor.kind != TensorKind::kVariable || tensor.shard_over > 1) continue;
    if (tensor.grouping->num_groups() == 1) continue;
    result.start[holder(ir, id)] = equal_rows_of(ir, groups, id, HostRows::kGroups, tensor.data->data());
  }
  return result;
}

Session::Session(std::shared_ptr<const Ir> ir, const SessionOptions& options,
                 std::shared_ptr<const PartitionAnalysis> facts)
    : ir_(std::move(ir)), strict_labels_(options.strict_labels) {
  with_deep_stack([&] { start(options, std::move(facts)); });
}

Session::~Session() = default;

void Session::start(const SessionOptions& options, std::shared_ptr<const PartitionAnalysis> facts) {
  if (facts == nullptr) {
    verify(*ir_);
    facts = keeping_facts(ir_, initial_assumptions(*ir_));
  }
  POPSR_CHECK(&facts->ir() == ir_.get());
  const int threads = options.num_threads == 0 ? default_threads() : options.num_threads;
  state_ = std::make_unique<State>(*ir_, options, threads);
  state_->states = facts->entry_tensors(kMainGraph);
  const std::vector<TensorId>& entries = facts->remote().of(kMainGraph);
  state_->states.insert(state_->states.end(), entries.begin(), entries.end());
  for (const TensorId id : state_->states) {
    state_->index.emplace(id, state_->index.size());
    state_->start.push_back(facts->start(id));
  }
  state_->home = state_->start;
  for (const StreamId id : ids<StreamId>(ir_->num_streams())) {
    const Stream& stream = ir_->stream(id);
    if (!stream.to_device || stream.mode != StreamMode::kReplicate) continue;
    (is_small(stream) ? state_->small : state_->large).push_back(id);
  }
  Key key{{}, state_->start};
  for (const StreamId id : state_->small) key.rows.push_back(facts->rows(id));
  state_->plans.push_back(compile(std::move(facts), std::move(key)));
  current().approved = true;  // whoever makes a session looks at its facts
  const auto unused = [this](StreamId id) { return current().reads[id] == 0; };
  std::erase_if(state_->large, unused);
  state_->positions.resize(ir_->num_streams() * static_cast<std::size_t>(ir_->replication()));
  std::vector<RowCopy> copies;
  for (const TensorId id : ir_->graph(kMainGraph).tensors) {
    if (ir_->tensor(id).kind != TensorKind::kVariable) continue;
    add_copies(*ir_, current().plan, id, HostRows::kGroups, ir_->tensor(id).data->data(), copies);
  }
  run_copies(copies);
}

std::unique_ptr<Session::Compiled> Session::compile(std::shared_ptr<const PartitionAnalysis> facts, Key key) {
  const SessionOptions& options = state_->options;
  const bool checks = options.check > 0;
  const PlanOptions plan{.dedup = options.dedup && !checks,
                         .fold = options.check < 1 && !options.check_floats,
                         .unroll = !checks,
                         .threads = options.num_threads == 0 ? default_threads() : options.num_threads,
                         .clamp_scales = options.clamp_scales,
                         .check_floats = options.check_floats};
  auto made = std::make_unique<Compiled>(std::move(facts), std::move(key), plan, state_->pool, options.check);
  const Context& main = made->facts->main();
  made->last = main.final_inputs;
  made->last.insert(made->last.end(), main.final_remote.begin(),
                    main.final_remote.begin() +
                        static_cast<std::ptrdiff_t>(state_->states.size() - main.final_inputs.size()));
  for (const TensorId id : state_->states) made->entry.push_back(made->facts->variable(id));
  return made;
}

Session::Compiled& Session::current() const { return *state_->plans.front(); }

const Plan& Session::plan() const { return current().plan; }

std::shared_ptr<const PartitionAnalysis> Session::facts() const { return current().facts; }

// --- which plan

void Session::check_transfers(std::span<const StreamBuffer> buffers) const {
  const IdVector<StreamId, std::int64_t>& all = current().reads;
  for (const StreamId id : all.ids()) {
    const std::int64_t reads = all[id];
    if (reads == 0) continue;
    POPSR_CHECK(id.index() < buffers.size());
    const std::int64_t transfers = buffers[id.index()].transfers;
    if (transfers < 1 || (reads > transfers && reads % transfers != 0)) {
      raise<ShapeError>(
          "run: stream '{}' moves on {} times in a run, got data for {}, expected num_host_transfers >= {}; "
          "made at {}",
          ir_->stream(id).name, reads, transfers, reads, place_text(*ir_, ir_->stream(id).location));
    }
    if (ir_->stream(id).mode != StreamMode::kEqual) continue;
    const auto found = find_difference(*ir_, id, buffers[id.index()], ir_->partitions().top());
    if (!found) continue;
    raise<ReplicaError>("run: stream '{}' is declared equal, {}, expected equal rows; made at {}",
                        ir_->stream(id).name, to_string(*ir_, buffers[id.index()], *found),
                        place_text(*ir_, ir_->stream(id).location));
  }
}

void Session::prepare(std::span<const StreamBuffer> buffers) {
  current().executor.forget_failure();
  if (current().facts->epoch() != ir_->epoch()) {
    raise<GraphError>("run: the program changed since the session was made, got {}; make the session again",
                      current().facts->change());
  }
  check_transfers(buffers);
  PartitionTable& table = ir_->partitions();
  Key key;
  key.rows.reserve(state_->small.size());
  for (const StreamId id : state_->small) {
    const bool is_used = current().reads[id] > 0;
    const auto same = [&](Replica r, Replica s) { return same_rows(*ir_, id, buffers[id.index()], r, s); };
    key.rows.push_back(is_used ? state_->groups.equal(table.bottom(), same) : table.top());
  }
  compare_large(buffers);
  if (!std::exchange(state_->is_whole, true)) read_back_facts();
  key.start = state_->start;
  switch_to(std::move(key));
}

void Session::compare_large(std::span<const StreamBuffer> buffers) {
  std::erase_if(state_->large, [&](StreamId id) {
    for (Replica r = 1; r < static_cast<Replica>(ir_->replication()); ++r) {
      if (!same_rows(*ir_, id, buffers[id.index()], 0, r)) return true;
    }
    return false;
  });
}

/// Takes up the plan for a key: one that was made for it, or whose fixpoint starts with the same facts; else
/// a new one.
void Session::switch_to(Key key) {
  const auto fits = [&key](const std::unique_ptr<Compiled>& each) {
    return each->key.rows == key.rows && (each->key.start == key.start || each->entry == key.start);
  };
  auto found = std::ranges::find_if(state_->plans, fits);
  if (found == state_->plans.begin()) return;
  Compiled& before = current();
  if (found == state_->plans.end()) {
    if (before.facts->epoch() != ir_->epoch() || state_->seeds != seed_rules(*ir_)) {
      raise<GraphError>(
          "session: other replicas agree than when it was made, and the program or its seeds of stochastic "
          "rounding changed since, got a program of another version, expected that of the session; make the "
          "session again");
    }
    Assumptions assumptions;
    for (std::size_t i = 0; i < key.rows.size(); ++i) assumptions.rows[state_->small[i]] = key.rows[i];
    for (std::size_t i = 0; i < key.start.size(); ++i) assumptions.start[state_->states[i]] = key.start[i];
    std::unique_ptr<Compiled> made;
    with_deep_stack([&] { made = compile(keeping_facts(ir_, std::move(assumptions)), std::move(key)); });
    found = state_->plans.insert(state_->plans.end(), std::move(made));
  }
  move_variables(*ir_, before.plan, (*found)->plan);
  if (before.executor.is_stopped()) (*found)->executor.stop();
  std::rotate(state_->plans.begin(), found, found + 1);
  forget_plans();
}

void Session::forget_plans() {
  std::vector<std::unique_ptr<Compiled>>& plans = state_->plans;
  std::size_t bytes = 0;
  for (std::size_t i = 1; i < plans.size(); ++i) {
    bytes += plans[i]->bytes();
    if (i < kMaxPlans && bytes <= kMaxPlanBytes) continue;
    for (std::size_t k = i; k < plans.size(); ++k) {
      with_deep_stack([&] { add_stats(plans[k]->plan.instructions(), state_->retired); });
    }
    plans.resize(i);
  }
}

bool Session::is_news() const { return !current().approved; }

void Session::approve() {
  current().approved = true;
  state_->told = current().key.rows;
}

std::vector<RowDifference> Session::broken(std::span<const StreamBuffer> buffers) const {
  std::vector<RowDifference> result;
  PartitionTable& table = ir_->partitions();
  for (std::size_t i = 0; i < state_->told.size(); ++i) {
    if (table.refines(state_->told[i], current().key.rows[i])) continue;
    const StreamId id = state_->small[i];
    if (const auto found = find_difference(*ir_, id, buffers[id.index()], state_->told[i]))
      result.push_back(*found);
  }
  return result;
}

std::vector<std::pair<StreamId, PartitionId>> Session::small_streams() const {
  std::vector<std::pair<StreamId, PartitionId>> result;
  for (std::size_t i = 0; i < state_->small.size(); ++i) {
    if (current().reads[state_->small[i]] == 0) continue;
    result.emplace_back(state_->small[i], current().key.rows[i]);
  }
  return result;
}

std::vector<StreamId> Session::large_equal_streams() const {
  return state_->runs == 0 ? std::vector<StreamId>() : state_->large;
}

// --- what variables hold

std::size_t Session::state_index(TensorId variable) const { return state_->index.at(holder(*ir_, variable)); }

PartitionId Session::device_rows(TensorId state, PartitionId known) const {
  const Plan& plan = current().plan;
  const BufferId buffer = plan.variable(state);
  const std::size_t bytes = bytes_of(plan.program().buffers[buffer].type);
  return state_->groups.equal(known, [&](Replica r, Replica s) {
    return same_bytes(plan.block(buffer, r), plan.block(buffer, s), bytes);
  });
}

/// After a run that ended in its middle nothing is known but what the device holds.
void Session::read_back_facts() {
  PartitionTable& table = ir_->partitions();
  for (std::size_t i = 0; i < state_->states.size(); ++i) {
    state_->start[i] = table.meet(state_->home[i], device_rows(state_->states[i], table.bottom()));
  }
}

std::vector<RowCopy> Session::prepare_write(std::span<const VariableRows> rows) {
  PartitionTable& table = ir_->partitions();
  if (!std::exchange(state_->is_whole, true)) read_back_facts();
  Key key{current().key.rows, state_->start};
  std::vector<PartitionId> home = state_->home;
  bool fits = true;
  for (const auto& [id, kind, data] : rows) {
    const std::size_t at = state_index(id);
    const PartitionId equal = equal_rows_of(*ir_, state_->groups, id, kind, data);
    const bool is_known = home[at] == equal && key.start[at] == equal;
    if (!is_known && holds_rows(*ir_, current().plan, id, kind, data)) continue;
    home[at] = key.start[at] = equal;
    const BufferId buffer = current().plan.variable(id);
    fits = fits && table.refines(current().plan.program().buffers[buffer].storage, equal);
  }
  std::vector<PartitionId> start = key.start;
  if (!fits) switch_to(std::move(key));
  state_->home = std::move(home);
  state_->start = std::move(start);
  std::vector<RowCopy> copies;
  for (const auto& [id, kind, data] : rows) add_copies(*ir_, current().plan, id, kind, data, copies);
  return copies;
}

SessionStats Session::stats() const {
  SessionStats stats = state_->retired;
  stats.runs = state_->runs;
  for (const auto& each : state_->plans) {
    with_deep_stack([&] { add_stats(each->plan.instructions(), stats); });
  }
  return stats;
}

SessionMemory Session::memory() const {
  const Memory& placed = plan().memory();
  SessionMemory memory{placed.variables, placed.constants, placed.activations, 0};
  for (const StreamId id : used_streams()) {
    const Stream& stream = ir_->stream(id);
    const auto rows =
        static_cast<std::size_t>(stream.mode == StreamMode::kBroadcast ? 1 : ir_->replication());
    memory.streams += rows * bytes_of(stream.type);
  }
  return memory;
}

std::vector<StreamId> Session::used_streams() const {
  std::vector<StreamId> used;
  for (const StreamId id : current().reads.ids()) {
    if (current().reads[id] > 0) used.push_back(id);
  }
  return used;
}

void Session::run(std::span<const StreamBuffer> buffers,
                  const std::function<void(const PrintRequest&)>& print, RunWatcher* watcher,
                  const std::function<void(const Op&, const StrayLabel&)>& stray) {
  prepare(buffers);
  run_prepared(buffers, print, watcher, stray);
}

void Session::run_prepared(std::span<const StreamBuffer> buffers,
                           const std::function<void(const PrintRequest&)>& print, RunWatcher* watcher,
                           const std::function<void(const Op&, const StrayLabel&)>& stray) {
  const std::function<void(const Op&, const StrayLabel&)> on_stray = [&](const Op& op,
                                                                         const StrayLabel& label) {
    if (strict_labels_) raise_stray(*ir_, op, label);
    if (state_->stray.insert(op.id).second && stray) stray(op, label);
  };
  StreamIo io(*ir_, buffers, print, on_stray, state_->positions);
  state_->is_whole = false;
  current().executor.run(state_->options.seed, step_, io, watcher);
  state_->is_whole = true;
  for (std::size_t i = 0; i < state_->start.size(); ++i) {
    state_->start[i] = ir_->partitions().meet(state_->home[i], current().last[i]);
  }
  ++step_;
  ++state_->runs;
}

void Session::stop() { current().executor.stop(); }

void Session::forget_stop() { current().executor.forget_stop(); }

std::string Session::stopped_text() const { return current().executor.stopped_text(); }

OpId Session::failed_op() const {
  const Op* const op = current().executor.failed();
  return op == nullptr ? kNone : op->id;
}

PartitionId Session::storage(TensorId id) const {
  return plan().program().buffers[plan().variable(id)].storage;
}

std::size_t Session::host_bytes(TensorId id, HostRows rows) const {
  return popsr::host_bytes(*ir_, id, rows);
}

void Session::read_variable(TensorId id, HostRows rows, std::byte* out) const {
  read_rows(*ir_, plan(), id, rows, out);
}

std::vector<std::span<const std::byte>> Session::row_views(TensorId id) const {
  return popsr::row_views(*ir_, plan(), id);
}

std::optional<Divergence> Session::divergence(TensorId id) const { return find_divergence(*ir_, plan(), id); }

bool Session::is_written(TensorId id) const { return current().written.contains(plan().variable(id)); }

}  // namespace popsr
