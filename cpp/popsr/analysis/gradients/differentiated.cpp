#include "popsr/analysis/gradients/differentiated.h"

#include <algorithm>

#include "popsr/analysis/partition_analysis.h"
#include "popsr/effects/remote_access.h"
#include "popsr/ir/gradient_graph.h"
#include "popsr/ir/op_def.h"

namespace popsr {
namespace {

/// True if outputs are inputs in another place or dtype.
bool moves_data(const Op& op) {
  const KernelAspect& kernel = op.def->kernel;
  const bool computes = kernel.elementwise || kernel.flops != nullptr;
  return op.def->program.control == Control::kNone && (!computes || op.def->numerics.linear) &&
         op.inputs.size() <= 2;
}

/// True if the output holds what its one source does on each replica: a gather may take other rows on another
/// replica, and a collective gives what replicas hold together.
bool copies(const Op& op) {
  if (op.def->replicas.peers != Peers::kNone) return false;
  return op.def->program.remote != Remote::kNone || op.inputs.size() == 1;
}

}  // namespace

Differentiated::Differentiated(const Ir& ir) : ir_(ir), contained_(ir.num_tensors()) {
  for (const GraphId graph : ids<GraphId>(ir.num_graphs())) {
    const GradientGraph* const made = ir.gradient_graph(graph);
    if (made == nullptr) continue;
    for (const TensorId t : made->required) {
      const TensorKind kind = ir.tensor(t).kind;
      if (kind == TensorKind::kInput || kind == TensorKind::kVariable) add(t, kNone);
    }
  }
  if (!todo_.empty()) list_callers();
  while (!todo_.empty()) {
    const TensorId tensor = todo_.back();
    todo_.pop_back();
    if (ir.tensor(tensor).kind == TensorKind::kInput) {
      add_arguments(tensor);
    } else if (ir.tensor(tensor).uses.producer != kNone) {
      add_origins(tensor);
    }
  }
}

void Differentiated::add(TensorId tensor, TensorId from) {
  if (const TensorId home = ir_.tensor(tensor).state.home; home != kNone) tensor = home;
  const auto add_storage = [&](TensorId storage) {
    const auto [it, fresh] = sources_.try_emplace(storage);
    if (from != kNone) sources_[from].push_back(storage);
    if (!fresh) return;
    contained_[storage] = true;
    storages_.push_back(storage);
    todo_.push_back(storage);
  };
  if (ir_.tensor(tensor).kind == TensorKind::kRemote) return add_storage(tensor);
  for_each_root(ir_, tensor, add_storage);
}

void Differentiated::list_callers() {
  callers_.resize(ir_.num_graphs());
  index_.resize(ir_.num_tensors());
  for (const OpId op : ir_.ops_with_graphs()) {
    for (const CalledGraph& called : called_graphs(ir_, ir_.op(op)))
      callers_[called.graph].push_back({op, called});
  }
  for (const GraphId graph : ids<GraphId>(ir_.num_graphs())) {
    std::uint32_t next = 0;
    for (const TensorId input : ir_.graph(graph).inputs) index_[input] = next++;
  }
}

/// The arguments for a graph's input, at all ops that run the graph.
void Differentiated::add_arguments(TensorId input) {
  const std::uint32_t index = index_[input];
  for (const auto& [op, called] : callers_[ir_.tensor(input).graph]) {
    if (called.first + index < called.end) add(ir_.op(op).inputs[called.first + index], input);
  }
}

/// The tensors that a copy, a cast or a load was made of.
void Differentiated::add_origins(TensorId tensor) {
  const Op& op = ir_.op(ir_.tensor(tensor).uses.producer);
  if (!moves_data(op)) return;
  for (const TensorId input : all_inputs(ir_, op)) {
    if (input != kNone && is_float(ir_.tensor(input).type.dtype)) add(input, tensor);
  }
}

std::map<TensorId, PartitionId> Differentiated::all() const {
  std::map<TensorId, PartitionId> result;
  for (const auto& [storage, handed] : sources_) {
    if (const auto fact = declared(storage)) result.emplace(storage, *fact);
  }
  return result;
}

std::optional<PartitionId> Differentiated::declared(TensorId storage) const {
  const TensorKind kind = ir_.tensor(storage).kind;
  if (kind == TensorKind::kVariable || kind == TensorKind::kShard || kind == TensorKind::kRemote)
    return declared_fact(ir_, storage);
  const auto it = declared_.find(storage);
  return it == declared_.end() ? declared_.emplace(storage, declared_by_sources(storage)).first->second
                               : it->second;
}

/// Of memory that is handed what variables hold.
std::optional<PartitionId> Differentiated::declared_by_sources(TensorId storage) const {
  const OpId producer = ir_.tensor(storage).uses.producer;
  if (producer != kNone && !copies(ir_.op(producer))) return std::nullopt;
  const auto it = sources_.find(storage);
  if (it == sources_.end() || it->second.empty()) return std::nullopt;
  PartitionId met = ir_.partitions().top();
  for (const TensorId source : it->second) {
    if (source == storage) continue;
    const auto fact = declared(source);
    if (!fact) return std::nullopt;
    met = ir_.partitions().meet(met, *fact);
  }
  return met;
}

}  // namespace popsr
