#include "popsr/ir/edit/journal.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "popsr/ir/edit/transaction.h"

namespace popsr {
namespace {

template <class T>
void shrink(std::vector<T>& list, std::size_t size) noexcept {
  if (list.size() > size) list.erase(list.begin() + static_cast<std::ptrdiff_t>(size), list.end());
}

std::uint32_t size_of_list(const auto& list) { return static_cast<std::uint32_t>(list.size()); }

}  // namespace

Transaction::Transaction(Ir& ir) : ir_(ir), level_(ir.journal_->begin()) {}

Transaction::~Transaction() {
  if (open_) ir_.journal_->roll_back(level_);
}

void Transaction::commit() noexcept {
  open_ = false;
  ir_.journal_->commit(level_);
}

std::size_t Journal::begin() {
  ir_.about_to_change();
  marks_.push_back(
      Mark{.log = log_.size(), .counters = ir_.counters(), .epoch = ir_.epoch_, .lineage = ir_.lineage_});
  return marks_.size() - 1;
}

void Journal::commit(std::size_t level) noexcept {
  shrink(marks_, level);
  if (!marks_.empty()) return;
  log_.clear();
  flat_.grow(extended_);
  extended_.clear();
}

void Journal::roll_back(std::size_t level) noexcept {
  if (level >= marks_.size()) return;
  const Mark mark = marks_[level];
  shrink(marks_, level);
  free_new_names(mark);  // some are of older tensors, which were renamed
  for (; log_.size() > mark.log; log_.pop_back()) {
    std::visit([this](auto& entry) { undo(entry); }, log_.back());
  }
  drop_new(mark);
}

/// Takes the names of tensors that were made since out of the table.
void Journal::free_new_names(const Mark& mark) noexcept {
  for (std::size_t size = ir_.tensors_.size(); size > mark.counters.tensors; --size) {
    const TensorId id(size - 1);
    const auto named = ir_.tensors_by_name_.find(ir_.tensors_[id].name);
    if (named != ir_.tensors_by_name_.end() && named->second == id) ir_.tensors_by_name_.erase(named);
  }
}

/// Everything that was made since.
void Journal::drop_new(const Mark& mark) noexcept {
  const Counters& before = mark.counters;
  free_new_names(mark);  // which came back
  ir_.tensors_.truncate(before.tensors);
  shrink(ir_.storage_indices_, before.tensors);
  flat_.truncate(before.tensors);
  ir_.ops_.truncate(before.ops);
  shrink(ir_.ops_with_graphs_, before.ops_with_graphs);
  while (ir_.graphs_.size() > before.graphs) ir_.graphs_.pop_back();
  std::erase_if(ir_.gradient_graphs_, [&](const auto& made) { return made.first.index() >= before.graphs; });
  while (ir_.streams_.size() > before.streams) ir_.streams_.pop_back();
  while (ir_.remotes_.size() > before.remotes) ir_.remotes_.pop_back();
  ir_.next_subgraph_ = before.next_subgraph;
  ir_.next_collision_ = before.next_collision;
  ir_.epoch_ = mark.epoch;
  ir_.lineage_.restore(mark.lineage, mark.epoch, ir_.newest_epoch_);
}

// Objects made since the innermost transaction began have no entries: they are dropped.

template <class I, class T>
void Journal::save_object(I id, T& object) {
  static_assert(std::is_nothrow_swappable_v<T>);
  auto copy = std::make_unique<T>(object);
  log_.push_back(Saved<I, T>{id, std::move(copy)});
  std::swap(object, *std::get<Saved<I, T>>(log_.back()).object);
}

FlatProgram& flat(const Ir& ir) { return Journal::flat(ir); }

void Journal::change() { ir_.lineage_.change(ir_.newest_epoch_); }

void Journal::save_viewed(TensorId id) {
  if (id.index() < begun().tensors) save_object(id, ir_.tensors_[id]);
}

void Journal::save_tensor(TensorId id) {
  if (id.index() >= begun().tensors) return;
  change();
  save_object(id, ir_.tensors_[id]);
}

void Journal::save_op(OpId id) {
  flat_.forget(ir_.ops_[id].graph);
  if (id.index() >= begun().ops) return;
  change();
  save_object(id, ir_.ops_[id]);
}

void Journal::save_graph(GraphId id) {
  flat_.forget(id);
  if (id.index() >= begun().graphs) return;
  change();
  save_object(id, ir_.graphs_[id]);
}

void Journal::save_remote(RemoteId id) {
  if (id.index() >= begun().remotes) return;
  change();
  save_object(id, ir_.remotes_[id]);
}

void Journal::save_views(TensorId root) {
  const auto views = ir_.views_.find(root);
  change();
  if (root.index() < begun().tensors && views != ir_.views_.end()) save_object(root, views->second);
}

void Journal::save_graph_tail(GraphId id) {
  if (extended_.empty() || extended_.back() != id) extended_.push_back(id);
  if (id.index() >= begun().graphs || marks_.back().tail_of == id) return;
  const Graph& graph = ir_.graphs_[id];
  log_.push_back(GraphTail{.graph = id,
                           .inputs = size_of_list(graph.inputs),
                           .outputs = size_of_list(graph.outputs),
                           .tensors = size_of_list(graph.tensors),
                           .ops = size_of_list(graph.ops),
                           .sequence = graph.sequence.tail(),
                           .next = graph.next,
                           .calls = graph.calls,
                           .has_views = graph.has_views});
  if (marks_.back().tail_of == kNone) marks_.back().tail_of = id;
}

void Journal::save_op_tail(OpId id) {
  flat_.forget(ir_.ops_[id].graph);
  if (id.index() >= begun().ops) return;
  ir_.lineage_.change_op(id.index(), ir_.newest_epoch_);
  log_.push_back(OpTail{id, size_of_list(ir_.ops_[id].outputs), size_of_list(ir_.ops_[id].call.modified)});
}

void Journal::save_views_tail(TensorId root) {
  // Also of new tensors: they are in no list.
  log_.push_back(ViewsTail{root, size_of_list(ir_.views(root)), ir_.views_.contains(root)});
}

void Journal::save_first_use(TensorId id) {
  if (id.index() < begun().tensors) log_.push_back(FirstUse{id, ir_.tensors_[id].uses.first_use});
}

void Journal::save_index(TensorId id) {
  change();
  if (id.index() < begun().tensors)
    log_.push_back(Index{id, ir_.tensors_[id].index, ir_.storage_indices_[id]});
}

void Journal::save_name(TensorId id) {
  if (id.index() >= begun().tensors) {
    ir_.tensors_by_name_.erase(ir_.tensors_[id].name);
    return;
  }
  log_.push_back(Name{id, {}});
  std::get<Name>(log_.back()).node = ir_.tensors_by_name_.extract(ir_.tensors_[id].name);
}

void Journal::save_position(OpId id) {
  flat_.forget(ir_.ops_[id].graph);
  change();
  if (id.index() < begun().ops) log_.push_back(Position{id, ir_.ops_[id].schedule.position});
}

void Journal::save_since(GraphId id) {
  if (id.index() >= begun().graphs) return;
  log_.push_back(Since{id, ir_.graphs_[id].sequence.since()});
}

void Journal::save_output(GraphId id, std::size_t index) {
  if (id.index() >= begun().graphs) return;
  change();
  log_.push_back(Output{id, static_cast<std::uint32_t>(index), ir_.graphs_[id].outputs[index]});
}

void Journal::save_schedule(GraphId id, std::uint32_t first) {
  flat_.forget(id);
  if (id.index() >= begun().graphs) return;
  change();
  const std::vector<OpId>& ops = ir_.graphs_[id].ops;
  log_.push_back(Schedule{id, first, {ops.begin() + first, ops.end()}});
}

void Journal::undo(const FirstUse& entry) noexcept { ir_.tensors_[entry.tensor].uses.first_use = entry.op; }

void Journal::undo(const Index& entry) noexcept {
  ir_.tensors_[entry.tensor].index = entry.index;
  ir_.storage_indices_[entry.tensor] = entry.storage_index;
}

/// The table held as many names before, so nothing is allocated.
void Journal::undo(Name& entry) noexcept {
  const auto now = ir_.tensors_by_name_.find(ir_.tensors_[entry.tensor].name);
  if (now != ir_.tensors_by_name_.end() && now->second == entry.tensor) ir_.tensors_by_name_.erase(now);
  if (entry.node) ir_.tensors_by_name_.insert(std::move(entry.node));
}

void Journal::undo(const Position& entry) noexcept { ir_.ops_[entry.op].schedule.position = entry.position; }

void Journal::undo(const GraphTail& entry) noexcept {
  Graph& graph = ir_.graphs_[entry.graph];
  shrink(graph.inputs, entry.inputs);
  shrink(graph.outputs, entry.outputs);
  shrink(graph.tensors, entry.tensors);
  shrink(graph.ops, entry.ops);
  graph.sequence.restore(entry.sequence);
  graph.next = entry.next;
  graph.calls = entry.calls;
  graph.has_views = entry.has_views;
}

void Journal::undo(const OpTail& entry) noexcept {
  shrink(ir_.ops_[entry.op].outputs, entry.outputs);
  shrink(ir_.ops_[entry.op].call.modified, entry.modified);
}

void Journal::undo(const ViewsTail& entry) noexcept {
  const auto views = ir_.views_.find(entry.root);
  if (views == ir_.views_.end()) return;
  shrink(views->second, entry.size);
  if (!entry.listed) ir_.views_.erase(views);
}

void Journal::undo(Since& entry) noexcept {
  ir_.graphs_[entry.graph].sequence.restore_since(std::move(entry.ops));
}

/// The list held as many before, so nothing is allocated.
void Journal::undo(const Output& entry) noexcept {
  std::vector<TensorId>& outputs = ir_.graphs_[entry.graph].outputs;
  outputs.insert(outputs.begin() + entry.index, entry.tensor);
}

/// Likewise.
void Journal::undo(const Schedule& entry) noexcept {
  std::vector<OpId>& ops = ir_.graphs_[entry.graph].ops;
  shrink(ops, entry.first);
  ops.insert(ops.end(), entry.ops.begin(), entry.ops.end());
}

void Journal::undo(Saved<TensorId, Tensor>& entry) noexcept {
  std::swap(ir_.tensors_[entry.id], *entry.object);
}
void Journal::undo(Saved<OpId, Op>& entry) noexcept { std::swap(ir_.ops_[entry.id], *entry.object); }
void Journal::undo(Saved<GraphId, Graph>& entry) noexcept { std::swap(ir_.graphs_[entry.id], *entry.object); }
void Journal::undo(Saved<RemoteId, RemoteBuffer>& entry) noexcept {
  std::swap(ir_.remotes_[entry.id], *entry.object);
}
void Journal::undo(Saved<TensorId, Views>& entry) noexcept {
  // It was listed then, and no undo erases what was listed.
  std::swap(ir_.views_.find(entry.id)->second, *entry.object);
}

}  // namespace popsr
