#include "popsr/runtime/session/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>

#include "popsr/analysis/explain/explanation.h"
#include "popsr/base/error.h"
#include "popsr/base/threads/deep_stack.h"
#include "popsr/effects/verify.h"
#include "popsr/exec/host_io.h"
#include "popsr/exec/invalid_labels.h"
#include "popsr/ir/op_def.h"
#include "popsr/runtime/check/label_errors.h"
#include "popsr/runtime/observe/observed_run.h"
#include "popsr/runtime/observe/tracer.h"
#include "popsr/runtime/session/session_state.h"

namespace popsr {

Session::Session(std::shared_ptr<const Ir> ir, const SessionOptions& options,
                 std::shared_ptr<const PartitionAnalysis> facts, std::shared_ptr<RankLink> link)
    : ir_(std::move(ir)),
      link_(std::move(link)),
      strict_labels_(options.strict_labels),
      profile_(options.profile),
      dedup_(options.dedup && options.check == 0) {
  with_deep_stack([&] { start(options, std::move(facts)); });
}

Session::~Session() = default;

void Session::start(const SessionOptions& options, std::shared_ptr<const PartitionAnalysis> facts) {
  if (facts == nullptr) {
    verify(*ir_);
    facts = owning_facts(ir_, options.seed_rules, initial_assumptions(*ir_));
  }
  POPSR_CHECK(&facts->ir() == ir_.get());
  state_ = std::make_unique<State>(*ir_, options.seed, link_.get());
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
                        std::move(key), link_.get());
  current().is_acknowledged = true;  // whoever makes a session looks at its facts
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

void Session::check_run(std::span<const StreamBuffer> buffers) const {
  if (current().facts->epoch() != ir_->epoch()) {
    raise<GraphError>("run: the program changed since the session was made, got {}; make the session again",
                      current().facts->change());
  }
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
  }
}

void Session::begin_run(std::span<const StreamBuffer> buffers) const {
  if (link_ == nullptr) return check_run(buffers);
  std::exception_ptr problem;
  try {
    check_run(buffers);
  } catch (const Error&) {
    problem = std::current_exception();
  }
  std::vector<RankItem> items{{"step", std::to_string(step_)}};
  for (const StreamId id : used_streams()) {
    if (id.index() >= buffers.size()) continue;
    items.push_back({fmt::format("transfers of stream '{}'", ir_->stream(id).name),
                     std::to_string(buffers[id.index()].transfers)});
  }
  link_->agree_or_raise(call_of("run", std::move(items)), problem);
}

void Session::check_equal_streams() {
  for (const StreamId id : used_streams()) {
    const Stream& stream = ir_->stream(id);
    if (!stream.to_device || stream.mode != StreamMode::kEqual) continue;
    if (link_ != nullptr) {
      if (state_->streams.compared.are_equal(id)) continue;
      state_->streams.compared.gather({&id, 1});
    }
    const auto found = find_difference(*ir_, id, compared_rows(id), ir_->partitions().top());
    if (!found) continue;
    raise<ReplicaError>("run: stream '{}' is declared equal, {}, expected equal rows; made at {}",
                        stream.name, to_string(*ir_, compared_rows(id), *found),
                        place_text(*ir_, stream.location));
  }
}

void Session::prepare(std::span<const StreamBuffer> buffers) {
  current().executor.clear_failure();
  begin_run(buffers);
  state_->streams.compared.set(buffers);
  std::vector<StreamId> compared = state_->streams.small;
  std::erase_if(compared, [this](StreamId id) { return current().reads[id] == 0; });
  state_->streams.compared.gather(compared);
  check_equal_streams();
  PartitionTable& table = ir_->partitions();
  std::vector<PartitionId>& rows = state_->streams.same_rows;
  rows.clear();
  for (const StreamId id : state_->streams.small) {
    const bool is_used = current().reads[id] > 0;
    const auto same = [&](Replica r, Replica s) { return same_rows(*ir_, id, compared_rows(id), r, s); };
    rows.push_back(is_used ? state_->groups.equal(table.bottom(), same) : table.top());
  }
  compare_large();
  if (!std::exchange(state_->variables.is_whole, true)) read_back_facts();
  const State::Variables& variables = state_->variables;
  if (!state_->plans->is_for(rows, variables.start, variables.pieces))
    state_->plans->switch_to({rows, variables.start, variables.pieces});
  state_->plans->make_ready();
}

void Session::compare_large() {
  std::erase_if(state_->streams.large,
                [this](StreamId id) { return !state_->streams.compared.are_equal(id); });
}

const StreamBuffer& Session::compared_rows(StreamId stream) const { return state_->streams.compared[stream]; }

const StreamRows& Session::stream_rows(StreamId stream) const { return state_->streams.rows[stream]; }

bool Session::plan_changed() const { return !current().is_acknowledged; }

void Session::acknowledge_plan() {
  current().is_acknowledged = true;
  state_->streams.previous_rows = current().key.rows;
}

std::vector<RowDifference> Session::weakened_streams() const {
  std::vector<RowDifference> result;
  PartitionTable& table = ir_->partitions();
  for (std::size_t i = 0; i < state_->streams.previous_rows.size(); ++i) {
    if (table.refines(state_->streams.previous_rows[i], current().key.rows[i])) continue;
    const StreamId id = state_->streams.small[i];
    if (const auto found = find_difference(*ir_, id, compared_rows(id), state_->streams.previous_rows[i]))
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

RankTraffic Session::traffic() const { return state_->plans->traffic(); }

SessionMemory Session::memory() const {
  const Memory& placed = plan().memory();
  SessionMemory memory{placed.variables, placed.constants, placed.activations, 0};
  for (const StreamId id : used_streams()) {
    const Stream& stream = ir_->stream(id);
    memory.streams += static_cast<std::size_t>(stream_rows(id).count()) * bytes_of(stream.type);
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
                  const std::function<void(const Op&, const InvalidLabel&)>& on_invalid_label) {
  const std::uint64_t number = stops_.begin();
  prepare(buffers);
  run_prepared(number, buffers, print, watcher, on_invalid_label);
}

void Session::run_prepared(std::uint64_t number, std::span<const StreamBuffer> buffers,
                           const std::function<void(const PrintRequest&)>& print, RunWatcher* watcher,
                           const std::function<void(const Op&, const InvalidLabel&)>& on_invalid_label) {
  const std::function<void(const Op&, const InvalidLabel&)> report_label = [&](const Op& op,
                                                                               const InvalidLabel& label) {
    if (strict_labels_) raise_invalid_label(*ir_, op, label);
    if (state_->reported_labels.insert(op.id).second && on_invalid_label) on_invalid_label(op, label);
  };
  const bool is_silent = link_ != nullptr && link_->rank() != 0;  // rank 0 sees what all replicas print
  const std::function<void(const PrintRequest&)> silence;
  StreamIo io(*ir_, state_->streams.rows, buffers, is_silent ? silence : print, report_label,
              state_->streams.positions);
  state_->variables.is_whole = false;
  {
    const RunTimer timer(profile_ ? &state_->time : nullptr, observers_.recording());
    Executor& executor = current().executor;
    current().has_run = true;
    const bool is_observed = !observers_.empty();
    executor.observe(is_observed ? &observers_ : nullptr);
    if (is_observed) notify_observers(buffers);
    try {
      executor.run(state_->seed, step_, io, stops_, number, watcher);
    } catch (...) {
      if (is_observed) observers_.run_ends(state_->plans->pool());
      throw;
    }
    if (is_observed) observers_.run_ends(state_->plans->pool());
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

void Session::trace(Tracer* tracer) {
  observers_.set_tracer(tracer);
  state_->plans->pool().collect_times(tracer == nullptr ? nullptr : &tracer->parts());
}

void Session::notify_observers(std::span<const StreamBuffer> buffers) {
  const std::vector<StreamId> streams = used_streams();
  observers_.run_begins({*ir_, plan(), dedup_, state_->seed, step_, state_->variables.ids, streams, buffers,
                         state_->streams.rows, state_->plans->pool()});
}

std::string Session::stopped_text() const { return current().executor.stopped_text(); }

OpId Session::failed_op() const {
  const Op* const op = current().executor.failed();
  return op == nullptr ? kNone : op->id;
}

}  // namespace popsr
