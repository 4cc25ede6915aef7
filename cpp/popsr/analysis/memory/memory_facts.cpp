#include "popsr/analysis/memory/memory_facts.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace popsr {

MemoryFacts::MemoryFacts(const Ir& ir, GraphId graph, PartitionId initial)
    : ir_(&ir),
      graph_(graph),
      shared_(ir.graph(graph).has_views),
      whole_(ir.graph(graph).tensors.size(), initial) {}

PartitionId MemoryFacts::read_shared(TensorId tensor) const {
  const Tensor& storage = ir_->tensor(ir_->tensor(tensor).memory.storage);
  if (!storage.memory.view) return whole_[storage.index];
  PartitionTable& table = ir_->partitions();
  PartitionId fact = table.top();
  for (const Region& region : storage.memory.view->regions) fact = table.meet(fact, read(region));
  return fact;
}

PartitionId MemoryFacts::read(const Region& region) const {
  const auto it = pieces_.find(region.root);
  if (region.whole || it == pieces_.end()) return whole_[ir_->tensor(region.root).index];
  PartitionId fact = ir_->partitions().top();
  for (const Piece& piece : it->second) {
    const auto touches = [&piece](const Box& box) { return intersection(piece.box, box).has_value(); };
    if (std::ranges::any_of(region.part.boxes, touches)) fact = ir_->partitions().meet(fact, piece.fact);
  }
  return fact;
}

void MemoryFacts::write_shared(TensorId tensor, PartitionId fact) {
  const Tensor& storage = ir_->tensor(ir_->tensor(tensor).memory.storage);
  if (!storage.memory.view) {
    if (!pieces_.empty()) pieces_.erase(storage.id);
    whole_.set(storage.index, fact);
    return;
  }
  for (const Region& region : storage.memory.view->regions) write_region(region, fact);
}

void MemoryFacts::write_region(const Region& region, PartitionId fact) {
  PartitionTable& table = ir_->partitions();
  const Tensor& root = ir_->tensor(region.root);
  if (region.whole) {
    pieces_.erase(root.id);
    whole_.set(root.index, fact);
    return;
  }
  const auto it = pieces_.find(root.id);
  Pieces old =
      it == pieces_.end() ? Pieces{{whole_box(root.type.shape), whole_[root.index]}} : std::move(it->second);
  for (const Box& box : region.part.boxes) {
    Pieces next;
    for (const Piece& piece : old) {
      for (Box& rest : difference(piece.box, box)) next.push_back({std::move(rest), piece.fact});
      const std::optional<Box> both = intersection(piece.box, box);
      // Some elements of an inexact part keep what they had.
      if (both && !region.part.exact) next.push_back({*both, table.meet(piece.fact, fact)});
    }
    if (region.part.exact) next.push_back({box, fact});
    tidy(table, next);
    old = std::move(next);
  }
  whole_.set(root.index, meet_of(table, old));
  if (old.size() == 1) {
    pieces_.erase(root.id);
  } else {
    pieces_[root.id] = std::move(old);
  }
}

Pieces MemoryFacts::cover(TensorId tensor) const {
  const Tensor& storage = ir_->tensor(ir_->tensor(tensor).memory.storage);
  if (!storage.memory.view) {
    const auto it = pieces_.find(storage.id);
    if (it != pieces_.end()) return it->second;
    return {{whole_box(storage.type.shape), whole_[storage.index]}};
  }
  Pieces result;
  const View& view = *storage.memory.view;
  for (std::size_t k = 0; k < view.bases.size(); ++k) {
    const Shape& input = ir_->tensor(view.bases[k]).type.shape;
    for (const Piece& piece : cover(view.bases[k])) {
      Boxes shown = in_output(view.parts[k], piece.box, storage.type.shape, input);
      for (Box& box : shown.boxes) result.push_back({std::move(box), piece.fact});
    }
  }
  tidy(ir_->partitions(), result);
  return result;
}

Pieces MemoryFacts::pieces(TensorId tensor) const {
  if (!shared_ || (pieces_.empty() && view_of(*ir_, tensor) == nullptr)) return {};
  Pieces result = cover(tensor);
  normalize(ir_->partitions(), result);
  return result;
}

void MemoryFacts::write(TensorId tensor, const Pieces& pieces) {
  PartitionTable& table = ir_->partitions();
  const Tensor& storage = ir_->tensor(ir_->tensor(tensor).memory.storage);
  if (!storage.memory.view) {
    shared_ = true;
    pieces_[storage.id] = pieces;
    whole_.set(storage.index, meet_of(table, pieces));
    return;
  }
  // An element that is shown twice has what was written to it last: all that may be.
  const View& view = *storage.memory.view;
  if (view.repeats || view.bases.empty()) return write(tensor, meet_of(table, pieces));
  const Pieces apart = meet(table, pieces, pieces);  // where some overlap, all have the facts of all
  for (std::size_t k = 0; k < view.bases.size(); ++k) {
    const Shape& input = ir_->tensor(view.bases[k]).type.shape;
    Pieces now = cover(view.bases[k]);
    for (const Piece& piece : apart) {
      const Boxes target = in_input(view.parts[k], piece.box, storage.type.shape, input);
      for (const Box& box : target.boxes) {
        Pieces next;
        for (const Piece& old : now) {
          for (Box& rest : difference(old.box, box)) next.push_back({std::move(rest), old.fact});
          const std::optional<Box> both = intersection(old.box, box);
          if (both && !target.exact) next.push_back({*both, table.meet(old.fact, piece.fact)});
        }
        if (target.exact) next.push_back({box, piece.fact});
        now = std::move(next);
      }
    }
    const PartitionId all = meet_of(table, now);
    normalize(table, now);
    if (now.empty()) {
      write(view.bases[k], all);
    } else {
      write(view.bases[k], now);
    }
  }
}

std::vector<PartitionId> MemoryFacts::all() const {
  std::vector<PartitionId> facts;
  facts.reserve(whole_.size());
  for (const TensorId id : ir_->graph(graph_).tensors) {
    const Tensor& tensor = ir_->tensor(id);
    const bool view = tensor.memory.storage == id && tensor.memory.view;
    facts.push_back(view ? read_shared(id) : whole_[tensor.index]);
  }
  return facts;
}

void MemoryFacts::grow(PartitionId initial) {
  whole_.grow(ir_->graph(graph_).tensors.size(), initial);
  shared_ = shared_ || ir_->graph(graph_).has_views;
}

}  // namespace popsr
