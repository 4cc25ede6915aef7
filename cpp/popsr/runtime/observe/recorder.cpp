#include "popsr/runtime/observe/recorder.h"

#include <cstring>
#include <string_view>
#include <utility>

#include "popsr/base/layout/shape.h"
#include "popsr/ir/op_def.h"
#include "popsr/ir/stream.h"
#include "popsr/runtime/observe/value_hash.h"

namespace popsr {
namespace {

constexpr std::size_t kFlush = std::size_t{1} << 20;

enum class Tag : std::uint32_t { kRun = 1, kSlot, kVariable, kStream, kRow, kEnd };

template <class Word>
void put(std::string& text, Word word) {
  char bytes[sizeof(Word)];
  std::memcpy(bytes, &word, sizeof(Word));
  text.append(bytes, sizeof(Word));
}

void put32(std::string& text, auto word) { put(text, static_cast<std::uint32_t>(word)); }

/// True if the op's results are in its output buffers, as a whole.
bool has_rows(const Instruction& instruction) {
  return instruction.op != nullptr && !instruction.op->def->memory.view &&
         !std::holds_alternative<Merged>(instruction.work) &&
         !std::holds_alternative<Sliced>(instruction.work) &&
         !std::holds_alternative<Conditional>(instruction.work);
}

}  // namespace

void Recorder::flush() {
  if (pending_.empty()) return;
  sink_(pending_);
  pending_.clear();
}

void Recorder::add_blocks(std::span<const std::uint32_t> labels, std::string& text) const {
  put32(text, labels.size());
  for (const std::uint32_t label : labels) put32(text, label);
}

void Recorder::run_begins(const ObservedRun& run) {
  ir_ = &run.ir;
  plan_ = &run.plan;
  dedup_ = run.dedup;
  slots_ = &plans_[run.plan.build_id()];
  put32(pending_, Tag::kRun);
  put(pending_, run.step);
  put(pending_, run.seed);
  add_variables(run, run.pool);
  add_streams(run, run.pool);
}

void Recorder::run_ends() {
  put32(pending_, Tag::kEnd);
  flush();
}

void Recorder::add_variables(const ObservedRun& run, ThreadPool& pool) {
  for (const TensorId id : run.variables) {
    const BufferId buffer = plan_->variable(id);
    const PartitionId storage = plan_->program().buffers[buffer].storage;
    std::vector<const std::byte*> blocks;
    for (const Replica r : plan_->blocks().representatives(storage))
      blocks.push_back(plan_->block(buffer, r));
    hashes_.resize(blocks.size());
    hash_values(plan_->program().buffers[buffer].type, nullptr, blocks, hashes_, pool);
    put32(pending_, Tag::kVariable);
    put32(pending_, id.value);
    add_blocks(plan_->blocks().labels(storage), pending_);
    put32(pending_, 1);
    put32(pending_, blocks.size());
    for (const std::uint64_t hash : hashes_) put(pending_, hash);
  }
}

void Recorder::add_streams(const ObservedRun& run, ThreadPool& pool) {
  for (const StreamId id : run.streams) {
    const Stream& stream = ir_->stream(id);
    if (!stream.to_device) continue;
    const StreamBuffer& buffer = run.buffers[id.index()];
    const auto rows = static_cast<std::size_t>(run.rows[id].count());
    std::vector<const std::byte*> values;
    for (std::size_t i = 0; i < rows * static_cast<std::size_t>(buffer.transfers); ++i)
      values.push_back(buffer.data + i * bytes_of(stream.type));
    hashes_.resize(values.size());
    hash_values(stream.type, nullptr, values, hashes_, pool);
    std::vector<std::uint32_t> labels;
    for (Replica r = 0; r < static_cast<Replica>(ir_->replication()); ++r)
      labels.push_back(static_cast<std::uint32_t>(run.rows[id].of(stream, r)));
    put32(pending_, Tag::kStream);
    put32(pending_, id.value);
    add_blocks(labels, pending_);
    put32(pending_, buffer.transfers);
    put32(pending_, rows);
    for (const std::uint64_t hash : hashes_) put(pending_, hash);
  }
}

std::vector<Recorder::Output> Recorder::outputs_of(const Instruction& instruction, std::string& text) const {
  std::vector<Output> outputs;
  for (const Claim& claim : instruction.checks.claims) {
    if (claim.output >= instruction.op->outputs.size()) continue;
    const TensorType& type = ir_->tensor(instruction.op->outputs[claim.output]).type;
    const Buffer& buffer = plan_->program().buffers[claim.buffer];
    if (claim.view == nullptr && (buffer.type.dtype != type.dtype || bytes_of(buffer.type) != bytes_of(type)))
      continue;
    const PartitionId fact = dedup_ ? claim.fact : buffer.storage;
    Output& output = outputs.emplace_back(Output{type, claim.view});
    for (const Replica r : plan_->blocks().representatives(fact)) {
      output.replicas.push_back(r);
      output.blocks.push_back(plan_->block(claim.buffer, r));
    }
    put32(text, claim.output);
    add_blocks(plan_->blocks().labels(fact), text);
    put32(text, output.blocks.size());
  }
  return outputs;
}

Recorder::Slot Recorder::make_slot(const Instruction& instruction) {
  Slot slot;
  std::string text;
  put32(text, instruction.op->id.value);
  const std::vector<PathId> path = nodes_to(plan_->program(), instruction.path);
  put32(text, path.size());
  for (const PathId at : path) {
    const PathNode& node = plan_->program().paths[at];
    put32(text, node.kind);
    put32(text, node.component);
    if (node.kind == PathNode::Kind::kIteration) slot.loops.push_back(at);
  }
  std::vector<OpId> covered;
  count_ops({&instruction, 1}, [&](const Op* op, const ExecutionCounts&, std::uint64_t) {
    if (op != nullptr) covered.push_back(op->id);
  });
  put32(text, covered.size());
  for (const OpId op : covered) put32(text, op.value);
  std::string outputs;
  slot.outputs = outputs_of(instruction, outputs);
  put32(text, slot.outputs.size());
  text += outputs;
  const auto [it, fresh] = ids_.try_emplace(std::move(text), static_cast<std::uint32_t>(ids_.size()));
  slot.id = it->second;
  if (fresh) {
    put32(pending_, Tag::kSlot);
    put32(pending_, slot.id);
    pending_ += it->first;
  }
  return slot;
}

const Recorder::Slot* Recorder::slot_of(const Instruction& instruction) {
  const auto found = slots_->find(&instruction);
  if (found != slots_->end()) return &found->second;
  return &slots_->emplace(&instruction, make_slot(instruction)).first->second;
}

void Recorder::outputs_ready(const Instruction& instruction, ActiveReplicas active,
                             const IdVector<PathId, std::uint64_t>& iterations, ThreadPool& pool) {
  if (!has_rows(instruction)) return;
  const Slot* const slot = slot_of(instruction);
  put32(pending_, Tag::kRow);
  put32(pending_, slot->id);
  for (const PathId path : slot->loops) put32(pending_, iterations[path]);
  for (const Output& output : slot->outputs) {
    hashes_.resize(output.blocks.size());
    hash_values(output.type, output.view, output.blocks, hashes_, pool);
    for (std::size_t b = 0; b < hashes_.size(); ++b)
      put(pending_, active(output.replicas[b]) ? hashes_[b] : std::uint64_t{0});
  }
  if (pending_.size() >= kFlush) flush();
}

}  // namespace popsr
