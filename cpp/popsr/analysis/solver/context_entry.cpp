#include "popsr/analysis/solver/context_entry.h"

#include <utility>

namespace popsr {
namespace {

/// The facts of all elements of a tensor.
Pieces cover(const Ir& ir, TensorId tensor, const TensorFacts& all, std::uint32_t i) {
  const auto it = all.pieces.find(i);
  return it != all.pieces.end() ? it->second
                                : Pieces{{whole_box(ir.tensor(tensor).type.shape), all.facts[i]}};
}

}  // namespace

bool meet_with(PartitionTable& table, std::vector<PartitionId>& facts,
               const std::vector<PartitionId>& others) {
  bool changed = false;
  for (std::size_t i = 0; i < facts.size(); ++i) {
    const PartitionId met = table.meet(facts[i], others[i]);
    changed |= met != facts[i];
    facts[i] = met;
  }
  return changed;
}

bool meet_with(const Ir& ir, const std::vector<TensorId>& tensors, ContextEntry& entry,
               const TensorFacts& others) {
  PartitionTable& table = ir.partitions();
  bool changed = false;
  for (std::uint32_t i = 0; i < tensors.size(); ++i) {
    if (!entry.pieces.contains(i) && !others.pieces.contains(i)) continue;
    const Pieces mine = cover(ir, tensors[i], {entry.inputs, entry.pieces}, i);
    const Pieces its = cover(ir, tensors[i], others, i);
    if (refines(table, mine, its)) continue;
    changed = true;
    Pieces met = meet(table, mine, its);
    entry.inputs[i] = meet_of(table, met);
    normalize(table, met);
    entry.pieces[i] = std::move(met);
    if (entry.pieces[i].empty()) entry.pieces.erase(i);
  }
  return meet_with(table, entry.inputs, others.facts) || changed;
}

}  // namespace popsr
