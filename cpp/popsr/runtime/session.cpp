#include "popsr/runtime/session.h"

#include <unordered_set>

#include "popsr/analysis/explanation.h"
#include "popsr/base/deep_stack.h"
#include "popsr/base/error.h"
#include "popsr/ir/op_def.h"
#include "popsr/ir/verify.h"
#include "popsr/runtime/executor.h"
#include "popsr/runtime/stray_labels.h"

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

}  // namespace

struct Session::State {
  State(const PartitionAnalysis& facts, Plan& plan, int threads, double check)
      : pool(threads),
        executor(facts, plan, pool, check),
        reads(plan.stream_reads()),
        positions(reads.size() * static_cast<std::size_t>(facts.ir().replication())) {
    for_each_op(plan.program().ops,
                [this](const LoweredOp& op) { written.insert(op.out.begin(), op.out.end()); });
  }
  ThreadPool pool;
  Executor executor;
  std::vector<std::int64_t> reads;
  std::vector<std::int64_t> positions;
  std::unordered_set<BufferId> written;  ///< Also kNone, where an output is not kept.
  std::unordered_set<OpId> stray;        ///< Ops whose stray labels the host was told of.
  std::uint64_t seed = 0;
  std::uint64_t runs = 0;
};

Session::Session(std::shared_ptr<const Ir> ir, const SessionOptions& options,
                 std::shared_ptr<const PartitionAnalysis> facts)
    : ir_(std::move(ir)), facts_(std::move(facts)), strict_labels_(options.strict_labels) {
  with_deep_stack([&] { compile(options); });
}

void Session::compile(const SessionOptions& options) {
  if (facts_ == nullptr) {
    verify(*ir_);
    facts_ = std::make_shared<const PartitionAnalysis>(*ir_);
  }
  POPSR_CHECK(&facts_->ir() == ir_.get());
  const bool checks = options.check > 0;
  const bool dedup = options.dedup && !checks;
  const int threads = options.num_threads == 0 ? default_threads() : options.num_threads;
  plan_ = std::make_unique<Plan>(*facts_, PlanOptions{.dedup = dedup,
                                                      .fold = options.check < 1 && !options.check_floats,
                                                      .unroll = !checks,
                                                      .threads = threads,
                                                      .clamp_scales = options.clamp_scales,
                                                      .check_floats = options.check_floats});
  state_ = std::make_unique<State>(*facts_, *plan_, threads, options.check);
  state_->seed = options.seed;
  for (const TensorId id : ir_->graph(kMainGraph).tensors) {
    if (ir_->tensor(id).kind != TensorKind::kVariable) continue;
    write_rows(*ir_, *plan_, id, HostRows::kGroups, ir_->tensor(id).data->data());
  }
}

Session::~Session() = default;

SessionStats Session::stats() const {
  SessionStats stats;
  stats.runs = state_->runs;
  with_deep_stack([&] { add_stats(plan_->instructions(), stats); });
  return stats;
}

SessionMemory Session::memory() const {
  SessionMemory memory{plan_->memory().variables, plan_->memory().constants, plan_->memory().activations, 0};
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
  for (StreamId id = 0; id < state_->reads.size(); ++id) {
    if (state_->reads[id] > 0) used.push_back(id);
  }
  return used;
}

void Session::run(std::span<const StreamBuffer> buffers,
                  const std::function<void(const PrintRequest&)>& print, RunWatcher* watcher,
                  const std::function<void(const Op&, const StrayLabel&)>& stray) {
  state_->executor.forget_failure();
  if (facts_->epoch() != ir_->epoch()) {
    raise<GraphError>("run: the program changed since the session was made, got {}; make the session again",
                      facts_->change());
  }
  for (StreamId id = 0; id < state_->reads.size(); ++id) {
    const std::int64_t reads = state_->reads[id];
    if (reads == 0) continue;
    POPSR_CHECK(id < buffers.size());
    const std::int64_t transfers = buffers[id].transfers;
    if (transfers < 1 || (reads > transfers && reads % transfers != 0)) {
      raise<ShapeError>(
          "run: stream '{}' moves on {} times in a run, got data for {}, expected num_host_transfers >= {}; "
          "made at {}",
          ir_->stream(id).name, reads, transfers, reads, place_text(*ir_, ir_->stream(id).location));
    }
  }
  const std::function<void(const Op&, const StrayLabel&)> on_stray = [&](const Op& op,
                                                                         const StrayLabel& label) {
    if (strict_labels_) raise_stray(*ir_, op, label);
    if (state_->stray.insert(op.id).second && stray) stray(op, label);
  };
  StreamIo io(*ir_, buffers, print, on_stray, state_->positions);
  state_->executor.run(state_->seed, step_, io, watcher);
  ++step_;
  ++state_->runs;
}

void Session::stop() { state_->executor.stop(); }

void Session::forget_stop() { state_->executor.forget_stop(); }

std::string Session::stopped_text() const { return state_->executor.stopped_text(); }

OpId Session::failed_op() const {
  const Op* const op = state_->executor.failed();
  return op == nullptr ? kNone : op->id;
}

PartitionId Session::storage(TensorId id) const {
  return plan_->program().buffers[plan_->variable(id)].storage;
}

std::size_t Session::host_bytes(TensorId id, HostRows rows) const {
  return popsr::host_bytes(*ir_, id, rows);
}

void Session::read_variable(TensorId id, HostRows rows, std::byte* out) const {
  read_rows(*ir_, *plan_, id, rows, out);
}

void Session::write_variable(TensorId id, HostRows rows, const std::byte* data) {
  write_rows(*ir_, *plan_, id, rows, data);
}

std::vector<std::span<const std::byte>> Session::row_views(TensorId id) const {
  return popsr::row_views(*ir_, *plan_, id);
}

std::optional<Divergence> Session::divergence(TensorId id) const { return find_divergence(*ir_, *plan_, id); }

bool Session::is_written(TensorId id) const { return state_->written.contains(plan_->variable(id)); }

}  // namespace popsr
