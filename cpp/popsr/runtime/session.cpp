#include "popsr/runtime/session.h"

#include <cstring>

#include "popsr/base/error.h"
#include "popsr/ir/op_def.h"
#include "popsr/ir/verify.h"
#include "popsr/runtime/executor.h"

namespace popsr {
namespace {

void add_stats(const std::vector<Instruction>& instructions, SessionStats& stats) {
  const auto count = [&stats](std::string_view name, const Instruction& instruction) {
    stats.kernel_calls[std::string(name)] += instruction.executions;
    stats.blocks[std::string(name)] +=
        instruction.executions * static_cast<std::uint64_t>(instruction.blocks);
  };
  for (const Instruction& instruction : instructions) {
    add_stats(instruction.body, stats);
    if (instruction.kind == Instruction::Kind::kLoop) continue;
    count(instruction.op ? instruction.op->def->name : "copy", instruction);
    if (instruction.product) count(instruction.product->def->name, instruction);
  }
}

}  // namespace

struct Session::State {
  State(const Ir& ir, Plan& plan, int threads, bool check)
      : pool(threads), executor(ir, plan, pool, check), reads(plan.stream_reads()) {}
  ThreadPool pool;
  Executor executor;
  std::vector<std::int64_t> reads;
  std::uint64_t seed = 0;
  std::uint64_t runs = 0;
};

Session::Session(std::shared_ptr<const Ir> ir, const SessionOptions& options) : ir_(std::move(ir)) {
  verify(*ir_);
  facts_ = std::make_unique<PartitionAnalysis>(*ir_);
  const bool dedup = options.dedup && !options.check;
  const int threads = options.num_threads == 0 ? default_threads() : options.num_threads;
  plan_ = std::make_unique<Plan>(*facts_,
                                 PlanOptions{.dedup = dedup, .fold = !options.check, .threads = threads});
  state_ = std::make_unique<State>(*ir_, *plan_, threads, options.check);
  state_->seed = options.seed;
  for (const TensorId id : entry_tensors(*ir_, kMainGraph)) {
    const Tensor& variable = ir_->tensor(id);
    write_rows(id, variable.data->data(), variable.grouping->partition(ir_->partitions()));
  }
}

Session::~Session() = default;

SessionStats Session::stats() const {
  SessionStats stats;
  stats.runs = state_->runs;
  add_stats(plan_->instructions(), stats);
  return stats;
}

SessionMemory Session::memory() const {
  SessionMemory memory{plan_->memory().variables, plan_->memory().constants, plan_->memory().activations, 0};
  for (const StreamId id : used_streams()) {
    const Stream& stream = ir_->stream(id);
    const std::int64_t rows = stream.mode == StreamMode::kBroadcast ? 1 : ir_->replication();
    memory.streams +=
        static_cast<std::size_t>(rows * num_elements(stream.type.shape)) * size_of(stream.type.dtype);
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
                  const std::function<void(const PrintRequest&)>& print) {
  if (facts_->epoch() != ir_->epoch()) {
    raise<GraphError>("session: the program changed since the session was built, got version {}, expected {}",
                      ir_->epoch(), facts_->epoch());
  }
  for (StreamId id = 0; id < state_->reads.size(); ++id) {
    const std::int64_t reads = state_->reads[id];
    if (reads == 0) continue;
    POPSR_CHECK(id < buffers.size());
    const std::int64_t transfers = buffers[id].transfers;
    if (transfers < 1 || (reads > transfers && reads % transfers != 0)) {
      raise<ShapeError>(
          "run: stream '{}' moves on {} times in a run, got data for {}, expected num_host_transfers >= {}",
          ir_->stream(id).name, reads, transfers, reads);
    }
  }
  StreamIo io(*ir_, buffers, print);
  state_->executor.run(state_->seed, step_, io);
  ++step_;
  ++state_->runs;
}

PartitionId Session::storage(TensorId id) const {
  return plan_->program().buffers[plan_->variable(id)].storage;
}

std::size_t Session::host_bytes(TensorId id) const {
  const TensorType& type = ir_->tensor(id).type;
  const std::int64_t rows = ir_->partitions().num_blocks(host_rows(id));
  return static_cast<std::size_t>(rows * num_elements(type.shape)) * size_of(type.dtype);
}

void Session::read_variable(TensorId id, std::byte* out) const {
  const BufferId buffer = plan_->variable(id);
  const std::size_t nbytes = plan_->memory().placements[buffer].nbytes;
  if (nbytes == 0) return;
  for (const Replica first : ir_->partitions().representatives(host_rows(id))) {
    std::memcpy(out, plan_->block(buffer, first), nbytes);
    out += nbytes;
  }
}

void Session::write_rows(TensorId id, const std::byte* data, PartitionId rows) {
  const BufferId buffer = plan_->variable(id);
  const std::size_t nbytes = plan_->memory().placements[buffer].nbytes;
  if (nbytes == 0) return;
  const std::span<const std::uint32_t> row = ir_->partitions().labels(rows);
  for (const Replica replica : ir_->partitions().representatives(storage(id))) {
    std::memcpy(plan_->block(buffer, replica), data + row[replica] * nbytes, nbytes);
  }
}

PartitionId Session::host_rows(TensorId id) const {
  const Tensor& variable = ir_->tensor(id);
  const bool all = variable.retrieval == RetrievalMode::kAllReplicas && variable.grouping->group_size() > 1;
  return all ? ir_->partitions().bottom() : variable.grouping->partition(ir_->partitions());
}

void Session::write_variable(TensorId id, const std::byte* data) { write_rows(id, data, host_rows(id)); }

}  // namespace popsr
