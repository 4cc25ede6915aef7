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
  return op.def->program.control == Control::kNone && (!computes || op.def->sums()) && op.inputs.size() <= 2;
}

/// True if the output holds the value of its one source on each replica. False for a gather, which may take
/// other rows on another replica, and for a collective, which combines the values of several replicas.
bool copies(const Op& op) {
  if (op.def->replicas.peers != Peers::kNone) return false;
  return op.def->program.remote != Remote::kNone || op.inputs.size() == 1;
}

}  // namespace

Differentiated::Differentiated(const Ir& ir) : ir_(ir) {
  for (const GraphId graph : ids<GraphId>(ir.num_graphs())) {
    const GradientGraph* const made = ir.gradient_graph(graph);
    if (made == nullptr) continue;
    if (places_.empty()) places_.resize(ir.num_tensors());
    reserve(2 * made->required.size());  // inputs, and variables for them
    for (const TensorId t : made->required) {
      const TensorKind kind = ir.tensor(t).kind;
      if (kind == TensorKind::kInput || kind == TensorKind::kVariable) add(t, kNone);
    }
  }
  if (!storages_.empty()) list_callers();
  for (std::uint32_t number = 0; number < storages_.size(); ++number) {
    const TensorId tensor = storages_[number];
    fetch_ahead(number);
    if (ir.tensor(tensor).kind == TensorKind::kInput) {
      add_arguments(tensor, number);
    } else if (ir.tensor(tensor).uses.producer != kNone) {
      add_origins(tensor, number);
    }
  }
  declared_.resize(storages_.size());
}

void Differentiated::reserve(std::size_t more) {
  storages_.reserve(storages_.size() + more);
  last_source_.reserve(last_source_.size() + more);
  sources_.reserve(sources_.size() + more);
}

/// Prefetches the memory of tensors that are visited soon.
void Differentiated::fetch_ahead(std::uint32_t number) const {
  constexpr std::size_t kAhead = 8;
  if (number + kAhead >= storages_.size()) return;
  const Tensor& tensor = ir_.tensor(storages_[number + kAhead]);
  __builtin_prefetch(&tensor);
  __builtin_prefetch(&tensor.uses);
}

void Differentiated::add(TensorId tensor, std::uint32_t from) {
  const TensorKind kind = ir_.tensor(tensor).kind;
  if (kind == TensorKind::kInput || kind == TensorKind::kRemote) return add_storage(tensor, from);
  if (const TensorId home = ir_.tensor(tensor).state.home; home != kNone) {
    tensor = home;
    if (ir_.tensor(tensor).kind == TensorKind::kRemote) return add_storage(tensor, from);
  }
  for_each_root(ir_, tensor, [&](TensorId storage) { add_storage(storage, from); });
}

void Differentiated::add_storage(TensorId storage, std::uint32_t from) {
  std::uint32_t& number = places_[storage].number;
  if (number == kNone) {
    number = static_cast<std::uint32_t>(storages_.size());
    storages_.push_back(storage);
    last_source_.push_back(kNone);
  }
  if (from == kNone) return;
  sources_.push_back({number, last_source_[from]});
  last_source_[from] = static_cast<std::uint32_t>(sources_.size() - 1);
}

void Differentiated::list_callers() {
  callers_.resize(ir_.num_graphs());
  for (const OpId op : ir_.ops_with_graphs()) {
    for (const CalledGraph& called : called_graphs(ir_, ir_.op(op)))
      callers_[called.graph].push_back({op, called});
  }
}

/// The arguments for a graph's input, at all ops that run the graph.
void Differentiated::add_arguments(TensorId input, std::uint32_t number) {
  const GraphId graph = ir_.tensor(input).graph;
  if (places_[input].input == kNone) {
    std::uint32_t next = 0;
    for (const TensorId each : ir_.graph(graph).inputs) places_[each].input = next++;
  }
  const std::uint32_t index = places_[input].input;
  constexpr std::uint32_t kAhead = 8;
  for (const auto& [op, called] : callers_[graph]) {
    const std::vector<TensorId>& arguments = ir_.op(op).inputs;
    const std::uint32_t at = called.first + index;
    if (at + kAhead < called.end && arguments[at + kAhead] != kNone) {
      const Tensor& next = ir_.tensor(arguments[at + kAhead]);
      __builtin_prefetch(&next.uses);
      __builtin_prefetch(&next.memory);
      __builtin_prefetch(&next.state.home);
    }
    if (at < called.end) add(arguments[at], number);
  }
}

/// The tensors that a copy, a cast or a load was made of.
void Differentiated::add_origins(TensorId tensor, std::uint32_t number) {
  const Op& op = ir_.op(ir_.tensor(tensor).uses.producer);
  if (!moves_data(op)) return;
  for (const TensorId input : all_inputs(ir_, op)) {
    if (input != kNone && is_float(ir_.tensor(input).type.dtype)) add(input, number);
  }
}

std::map<TensorId, PartitionId> Differentiated::all() const {
  std::map<TensorId, PartitionId> result;
  for (const TensorId storage : storages_) {
    if (const auto fact = declared(storage)) result.emplace(storage, *fact);
  }
  return result;
}

std::optional<PartitionId> Differentiated::declared(TensorId storage) const {
  const std::uint32_t number = places_.empty() ? std::uint32_t{kNone} : places_[storage].number;
  if (number != kNone && declared_[number].known != Known::kNo) {
    const Declared& declared = declared_[number];
    return declared.known == Known::kFact ? std::optional(declared.fact) : std::nullopt;
  }
  const TensorKind kind = ir_.tensor(storage).kind;
  const bool state =
      kind == TensorKind::kVariable || kind == TensorKind::kShard || kind == TensorKind::kRemote;
  const auto fact = state ? std::optional(declared_fact(ir_, storage)) : declared_by_sources(storage);
  if (number != kNone)
    declared_[number] = {fact ? Known::kFact : Known::kNothing, fact.value_or(PartitionId{})};
  return fact;
}

/// Declared fact of memory that is passed the values of variables.
std::optional<PartitionId> Differentiated::declared_by_sources(TensorId storage) const {
  const OpId producer = ir_.tensor(storage).uses.producer;
  if (producer != kNone && !copies(ir_.op(producer))) return std::nullopt;
  if (!contains(storage)) return std::nullopt;
  std::uint32_t at = last_source_[places_[storage].number];
  if (at == kNone) return std::nullopt;
  PartitionId met = ir_.partitions().top();
  for (; at != kNone; at = sources_[at].before) {
    const TensorId source = storages_[sources_[at].number];
    if (source == storage) continue;
    const auto fact = declared(source);
    if (!fact) return std::nullopt;
    met = ir_.partitions().meet(met, *fact);
  }
  return met;
}

}  // namespace popsr
