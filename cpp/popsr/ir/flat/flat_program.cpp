#include "popsr/ir/flat/flat_program.h"

namespace popsr {

FlatProgram::Kept& FlatProgram::kept_of(GraphId graph) {
  if (graph.index() >= kept_.size()) kept_.resize(ir_.num_graphs());
  return kept_[graph];
}

const FlatSchedule& FlatProgram::schedule(GraphId graph) {
  Kept& kept = kept_of(graph);
  if (kept.epoch == ir_.epoch()) return kept.schedule;
  if (!is_prefix(kept)) kept.schedule = {};
  update(kept, graph);
  return kept.schedule;
}

void FlatProgram::update(Kept& kept, GraphId graph) {
  kept.epoch = kNever;  // until it is whole
  kept.schedule.grow(ir_, graph);
  kept.epoch = ir_.epoch();
  kept.ops = ir_.num_ops();
}

const IdVector<TensorId, std::int64_t>& FlatProgram::sizes() {
  for (std::size_t i = sizes_.size(); i < ir_.num_tensors(); ++i)
    sizes_.push_back(num_elements(ir_.tensor(TensorId(i)).type.shape));
  return sizes_;
}

void FlatProgram::truncate(std::size_t tensors) noexcept {
  if (sizes_.size() > tensors) sizes_.resize(tensors);
}

void FlatProgram::grow(std::span<const GraphId> graphs) noexcept {
  try {
    sizes();
    for (const GraphId graph : graphs) {
      if (graph.index() >= ir_.num_graphs()) continue;  // undone
      Kept& kept = kept_of(graph);
      const bool fresh = kept.epoch == kNever && kept.schedule.size() == 0;
      if (fresh || is_prefix(kept)) update(kept, graph);
    }
  } catch (...) {
    kept_.clear();  // they are made when they are asked for, which throws again if need be
  }
}

}  // namespace popsr
