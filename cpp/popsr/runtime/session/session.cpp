#include "popsr/runtime/session/session.h"

#include <algorithm>
#include <chrono>
#include <unordered_map>
#include <unordered_set>

#include "popsr/analysis/explain/explanation.h"
#include "popsr/base/deep_stack.h"
#include "popsr/base/error.h"
#include "popsr/effects/verify.h"
#include "popsr/exec/host_io.h"
#include "popsr/exec/stray_labels.h"
#include "popsr/ir/op_def.h"
#include "popsr/runtime/check/stray_labels.h"
#include "popsr/runtime/session/plan_cache.h"

namespace popsr {

struct Session::State {
  /// Streams with a row per replica.
  struct Streams {
    std::vector<StreamId> small, large;  ///< Of `large` those whose rows were equal so far.
    std::vector<PartitionId> rows;       ///< Of `small`, of the run at hand.
    std::vector<PartitionId> told;       ///< PlanKey::rows of the run before; empty before the first.
    std::vector<std::int64_t> positions;
  };
  /// Variables and shards, then remote entries.
  struct Variables {
    std::vector<TensorId> ids;
    std::unordered_map<TensorId, std::size_t> index;  ///< Into `ids` and the lists below.
    std::vector<PartitionId> start;  ///< Replicas that hold the same when the next run starts.
    PiecesByInput pieces;            ///< The same of parts of them.
    std::vector<PartitionId> home;   ///< What the host wrote last: the most that `start` may be.
    bool is_whole = true;            ///< False after a run that ended in its middle: `start` is not known.
  };

  State(const Ir& ir, std::uint64_t its_seed) : seed(its_seed), groups(ir) {}
  std::uint64_t seed;
  RowGroups groups;
  Streams streams;
  Variables variables;
  std::optional<PlanCache> plans;  ///< Set when the session starts.
  std::unordered_set<OpId> stray;  ///< Ops whose stray labels the host was told of.
  std::uint64_t runs = 0;
  std::chrono::nanoseconds time{0};  ///< Of all runs, with SessionOptions::profile.
};

Session::Session(std::shared_ptr<const Ir> ir, const SessionOptions& options,
                 std::shared_ptr<const PartitionAnalysis> facts)
    : ir_(std::move(ir)), strict_labels_(options.strict_labels), profile_(options.profile) {
  with_deep_stack([&] { start(options, std::move(facts)); });
}

Session::~Session() = default;

void Session::start(const SessionOptions& options, std::shared_ptr<const PartitionAnalysis> facts) {
  if (facts == nullptr) {
    verify(*ir_);
    facts = keeping_facts(ir_, initial_assumptions(*ir_));
  }
  POPSR_CHECK(&facts->ir() == ir_.get());
  state_ = std::make_unique<State>(*ir_, options.seed);
  state_->variables.ids = facts->entry_tensors(kMainGraph);
  const std::vector<TensorId>& entries = facts->remote().of(kMainGraph);
  state_->variables.ids.insert(state_->variables.ids.end(), entries.begin(), entries.end());
  for (const TensorId id : state_->variables.ids) {
    state_->variables.index.emplace(id, state_->variables.index.size());
    state_->variables.start.push_back(facts->start(id));
  }
  state_->variables.home = state_->variables.start;
  for (const StreamId id : ids<StreamId>(ir_->num_streams())) {
    const Stream& stream = ir_->stream(id);
    if (!stream.to_device || stream.mode != StreamMode::kReplicate) continue;
    (is_small(stream) ? state_->streams.small : state_->streams.large).push_back(id);
  }
  PlanKey key{{}, state_->variables.start};
  for (const StreamId id : state_->streams.small) key.rows.push_back(facts->rows(id));
  state_->plans.emplace(ir_, options, state_->streams.small, state_->variables.ids, std::move(facts),
                        std::move(key));
  current().approved = true;  // whoever makes a session looks at its facts
  const auto unused = [this](StreamId id) { return current().reads[id] == 0; };
  std::erase_if(state_->streams.large, unused);
  state_->streams.positions.resize(ir_->num_streams() * static_cast<std::size_t>(ir_->replication()));
  std::vector<RowCopy> copies;
  for (const TensorId id : ir_->graph(kMainGraph).tensors) {
    if (ir_->tensor(id).kind != TensorKind::kVariable) continue;
    add_copies(*ir_, current().plan, id, HostRows::kGroups, ir_->tensor(id).state.data->data(), copies);
  }
  run_copies(copies);
}

CompiledPlan& Session::current() const { return state_->plans->current(); }

const Plan& Session::plan() const { return current().plan; }

std::shared_ptr<const PartitionAnalysis> Session::facts() const { return current().facts; }

// The choice of the plan

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
  std::vector<PartitionId>& rows = state_->streams.rows;
  rows.clear();
  for (const StreamId id : state_->streams.small) {
    const bool is_used = current().reads[id] > 0;
    const auto same = [&](Replica r, Replica s) { return same_rows(*ir_, id, buffers[id.index()], r, s); };
    rows.push_back(is_used ? state_->groups.equal(table.bottom(), same) : table.top());
  }
  compare_large(buffers);
  if (!std::exchange(state_->variables.is_whole, true)) read_back_facts();
  const State::Variables& variables = state_->variables;
  if (!state_->plans->is_for(rows, variables.start, variables.pieces))
    state_->plans->switch_to({rows, variables.start, variables.pieces});
  state_->plans->make_ready();
}

void Session::compare_large(std::span<const StreamBuffer> buffers) {
  std::erase_if(state_->streams.large, [&](StreamId id) {
    for (Replica r = 1; r < static_cast<Replica>(ir_->replication()); ++r) {
      if (!same_rows(*ir_, id, buffers[id.index()], 0, r)) return true;
    }
    return false;
  });
}

bool Session::is_news() const { return !current().approved; }

void Session::approve() {
  current().approved = true;
  state_->streams.told = current().key.rows;
}

std::vector<RowDifference> Session::broken(std::span<const StreamBuffer> buffers) const {
  std::vector<RowDifference> result;
  PartitionTable& table = ir_->partitions();
  for (std::size_t i = 0; i < state_->streams.told.size(); ++i) {
    if (table.refines(state_->streams.told[i], current().key.rows[i])) continue;
    const StreamId id = state_->streams.small[i];
    if (const auto found = find_difference(*ir_, id, buffers[id.index()], state_->streams.told[i]))
      result.push_back(*found);
  }
  return result;
}

std::vector<std::pair<StreamId, PartitionId>> Session::small_streams() const {
  std::vector<std::pair<StreamId, PartitionId>> result;
  for (std::size_t i = 0; i < state_->streams.small.size(); ++i) {
    if (current().reads[state_->streams.small[i]] == 0) continue;
    result.emplace_back(state_->streams.small[i], current().key.rows[i]);
  }
  return result;
}

std::vector<StreamId> Session::large_equal_streams() const {
  return state_->runs == 0 ? std::vector<StreamId>() : state_->streams.large;
}

// The values of variables

std::size_t Session::state_index(TensorId variable) const {
  return state_->variables.index.at(holder(*ir_, variable));
}

PartitionId Session::device_rows(TensorId state, PartitionId known) const {
  const Plan& plan = current().plan;
  const BufferId buffer = plan.variable(state);
  const std::size_t bytes = bytes_of(plan.program().buffers[buffer].type);
  return state_->groups.equal(known, [&](Replica r, Replica s) {
    return same_bytes(plan.block(buffer, r), plan.block(buffer, s), bytes);
  });
}

/// After a run that ended in its middle only the values on the device are known.
void Session::read_back_facts() {
  PartitionTable& table = ir_->partitions();
  state_->variables.pieces.clear();
  for (std::size_t i = 0; i < state_->variables.ids.size(); ++i) {
    state_->variables.start[i] =
        table.meet(state_->variables.home[i], device_rows(state_->variables.ids[i], table.bottom()));
  }
}

std::vector<RowCopy> Session::prepare_write(std::span<const VariableRows> rows) {
  PartitionTable& table = ir_->partitions();
  if (!std::exchange(state_->variables.is_whole, true)) read_back_facts();
  PlanKey key{current().key.rows, state_->variables.start, state_->variables.pieces};
  std::vector<PartitionId> home = state_->variables.home;
  bool fits = true;
  std::vector<TensorId> changed;
  for (const auto& [id, kind, data] : rows) {
    const std::size_t at = state_index(id);
    const PartitionId equal = equal_rows_of(*ir_, state_->groups, id, kind, data);
    const bool in_parts = key.pieces.contains(static_cast<std::uint32_t>(at));
    const bool is_known = home[at] == equal && key.start[at] == equal && !in_parts;
    const BufferId buffer = current().plan.variable(id);
    const bool is_shared = current().plan.is_shared(buffer);
    if ((is_shared || !is_known) && holds_rows(*ir_, current().plan, id, kind, data)) continue;
    changed.push_back(id);
    home[at] = key.start[at] = equal;
    key.pieces.erase(static_cast<std::uint32_t>(at));
    fits = fits && table.refines(current().plan.program().buffers[buffer].storage, equal);
  }
  std::vector<PartitionId> start = key.start;
  PiecesByInput pieces = key.pieces;
  if (!fits) state_->plans->switch_to(std::move(key));
  for (const TensorId id : changed) {  // memory may run out: the facts are still those of the values
    const BufferId buffer = current().plan.variable(id);
    if (current().plan.is_shared(buffer)) current().plan.own(buffer);
  }
  state_->variables.home = std::move(home);
  state_->variables.start = std::move(start);
  state_->variables.pieces = std::move(pieces);
  std::vector<RowCopy> copies;
  for (const auto& [id, kind, data] : rows) add_copies(*ir_, current().plan, id, kind, data, copies);
  return copies;
}

SessionStats Session::stats() const {
  SessionStats stats = state_->plans->stats();
  stats.runs = state_->runs;
  return stats;
}

Profile Session::profile() const {
  Profile profile = state_->plans->profile();
  profile.time = state_->time;
  return profile;
}

SessionMemory Session::memory() const {
  const Memory& placed = plan().memory();
  SessionMemory memory{placed.variables, placed.constants, placed.activations, 0};
  for (const StreamId id : used_streams()) {
    const Stream& stream = ir_->stream(id);
    const auto rows = static_cast<std::size_t>(num_rows(stream, ir_->replication()));
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
  StreamIo io(*ir_, buffers, print, on_stray, state_->streams.positions);
  state_->variables.is_whole = false;
  {
    const RunTimer timer(profile_ ? &state_->time : nullptr);
    current().executor.run(state_->seed, step_, io, watcher);
  }
  state_->variables.is_whole = true;
  for (std::size_t i = 0; i < state_->variables.start.size(); ++i) {
    state_->variables.start[i] = ir_->partitions().meet(state_->variables.home[i], current().last.whole[i]);
  }
  state_->variables.pieces = current().last.pieces;
  for (auto& [i, pieces] : state_->variables.pieces) {
    meet_all(ir_->partitions(), pieces, state_->variables.home[i]);
    normalize(ir_->partitions(), pieces);
  }
  std::erase_if(state_->variables.pieces, [](const auto& each) { return each.second.empty(); });
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
