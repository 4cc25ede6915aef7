#include "popsr/analysis/memory_facts.h"

#include <algorithm>
#include <limits>
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
  if (!storage.memory.view && storage.memory.viewed != Viewed::kPartly) return whole_[storage.index];
  PartitionTable& table = ir_->partitions();
  PartitionId fact = table.top();
  for (const Region& region : regions_of(*ir_, storage.id)) fact = table.meet(fact, read(region));
  return fact;
}

PartitionId MemoryFacts::read(const Region& region) const {
  const auto it = pieces_.find(region.root);
  if (it == pieces_.end()) return whole_[ir_->tensor(region.root).index];
  PartitionId fact = ir_->partitions().top();
  for (const Piece& piece : it->second) {
    const auto touches = [&piece](const Box& box) { return intersection(piece.box, box).has_value(); };
    if (region.whole || std::ranges::any_of(region.part.boxes, touches))
      fact = ir_->partitions().meet(fact, piece.fact);
  }
  return fact;
}

void MemoryFacts::write_shared(TensorId tensor, PartitionId fact) {
  const Tensor& storage = ir_->tensor(ir_->tensor(tensor).memory.storage);
  if (!storage.memory.view && storage.memory.viewed != Viewed::kPartly) {
    whole_[storage.index] = fact;
    return;
  }
  for (const Region& region : regions_of(*ir_, storage.id)) write_region(region, fact);
}

void MemoryFacts::write_region(const Region& region, PartitionId fact) {
  PartitionTable& table = ir_->partitions();
  const Tensor& root = ir_->tensor(region.root);
  if (region.whole) {
    pieces_.erase(root.id);
    whole_[root.index] = fact;
    return;
  }
  const auto it = pieces_.find(root.id);
  std::vector<Piece> old = it == pieces_.end()
                               ? std::vector<Piece>{{whole_box(root.type.shape), whole_[root.index]}}
                               : std::move(it->second);
  std::vector<Piece> next;
  for (const Box& box : region.part.boxes) {
    for (const Piece& piece : old) {
      for (Box& rest : difference(piece.box, box)) next.push_back({std::move(rest), piece.fact});
      const std::optional<Box> both = intersection(piece.box, box);
      // Some elements of an inexact part keep what they had.
      if (both && !region.part.exact) next.push_back({*both, table.meet(piece.fact, fact)});
    }
    if (region.part.exact) next.push_back({box, fact});
    tidy(next);
    old = std::exchange(next, {});
  }
  if (old.size() == 1) {
    pieces_.erase(root.id);
    whole_[root.index] = old.front().fact;
  } else {
    pieces_[root.id] = std::move(old);
  }
}

void MemoryFacts::tidy(std::vector<Piece>& pieces) const {
  PartitionTable& table = ir_->partitions();
  for (bool again = true; again;) {
    again = false;
    for (std::size_t i = 0; i < pieces.size() && !again; ++i) {
      for (std::size_t k = i + 1; k < pieces.size() && !again; ++k) {
        if (pieces[i].fact != pieces[k].fact) continue;
        std::optional<Box> both = exact_union(pieces[i].box, pieces[k].box);
        if (!both) continue;
        pieces[i].box = std::move(*both);
        pieces.erase(pieces.begin() + static_cast<std::ptrdiff_t>(k));
        again = true;
      }
    }
  }
  // Boxes that overlap after that are met where they are read.
  while (pieces.size() > kMaxPieces) {
    std::size_t first = 0, second = 1;
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      for (std::size_t k = i + 1; k < pieces.size(); ++k) {
        const std::int64_t waste = num_elements(hull(pieces[i].box, pieces[k].box)) -
                                   num_elements(pieces[i].box) - num_elements(pieces[k].box);
        if (waste >= least) continue;
        least = waste;
        first = i;
        second = k;
      }
    }
    pieces[first] = {hull(pieces[first].box, pieces[second].box),
                     table.meet(pieces[first].fact, pieces[second].fact)};
    pieces.erase(pieces.begin() + static_cast<std::ptrdiff_t>(second));
  }
}

std::vector<PartitionId> MemoryFacts::all() && {
  if (!shared_) return std::move(whole_);
  std::vector<PartitionId> facts = whole_;
  for (const TensorId id : ir_->graph(graph_).tensors) {
    const Tensor& tensor = ir_->tensor(id);
    if (tensor.memory.storage == id && (tensor.memory.view || tensor.memory.viewed == Viewed::kPartly)) {
      facts[tensor.index] = read_shared(id);
    }
  }
  return facts;
}

}  // namespace popsr
