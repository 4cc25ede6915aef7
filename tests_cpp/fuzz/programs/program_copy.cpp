#include "fuzz/programs/program_copy.h"

#include <algorithm>
#include <set>

#include "popsr/transform/graph_editor.h"

namespace popsr::test {

ProgramCopy::ProgramCopy(const Ir& from, Program& to, Replicas replicas)
    : from_(from), to_(to), replicas_(std::move(replicas)) {
  if (!replicas_.grouping) replicas_.grouping = [](const ReplicaGrouping& groups) { return groups; };
  if (!replicas_.mapping)
    replicas_.mapping = [](const std::vector<std::int64_t>& mapping) { return mapping; };
  to_.sequence = SequenceMode::kOrdered;
  for (const StreamId s : ids<StreamId>(from.num_streams())) {
    const Stream& stream = from.stream(s);
    std::optional<ReplicaGrouping> groups;
    if (stream.groups) groups = replicas_.grouping(*stream.groups);
    to_.ir.add_stream(stream.name, stream.type, stream.to_device, stream.mode, {}, std::move(groups));
  }
  for (const RemoteId b : ids<RemoteId>(from.num_remotes())) {
    to_.ir.add_remote_buffer(from.remote(b).type, static_cast<std::int64_t>(from.remote(b).entries.size()));
  }
  for (const TensorId t : from.graph(kMainGraph).tensors) {
    const Tensor& tensor = from.tensor(t);
    if (tensor.kind != TensorKind::kVariable) continue;
    tensors_[t] = to_.variable("w", replicas_.grouping(*tensor.state.grouping), tensor.type);
  }
}

/// A tensor of the main graph is captured when a called graph first reads it.
TensorId ProgramCopy::operand(TensorId t) {
  if (to_.at == kMainGraph) return tensors_.at(t);
  if (const auto it = inner_.find(t); it != inner_.end()) return it->second;
  const Tensor& outer = to_.ir.tensor(tensors_.at(t));
  // Aliases of one allocation are one input.
  for (std::size_t i = 0; i < captured_.size(); ++i) {
    if (to_.ir.tensor(tensors_.at(captured_[i])).memory.storage == outer.memory.storage) {
      return inner_[t] = to_.ir.graph(to_.at).inputs[i];
    }
  }
  captured_.push_back(t);
  return inner_[t] = to_.ir.add_input(to_.at, "in", outer.type, outer.meta_shape);
}

OpId ProgramCopy::copy(const Op& op) {
  std::vector<TensorId> inputs;
  for (const TensorId t : op.inputs) inputs.push_back(t == kNone ? kNone : operand(t));
  Attrs attrs;
  for (std::size_t i = 0; i < op.attrs.size(); ++i) {
    Attribute value = op.attrs[i];
    const std::string_view name = op.def->attrs[i].name;
    if (name == "group") value = replicas_.grouping(op.get(Attr<ReplicaGrouping>{name}));
    if (name == "mapping") value = replicas_.mapping(op.get(Attr<std::vector<std::int64_t>>{name}));
    attrs.emplace_back(std::string(name), std::move(value));
  }
  const OpId made = to_.emit(op.def->name, std::move(inputs), std::move(attrs));
  auto& known = to_.at == kMainGraph ? tensors_ : inner_;
  for (std::size_t k = 0; k < op.outputs.size(); ++k) known[op.outputs[k]] = to_.ir.op(made).outputs[k];
  return made;
}

void ProgramCopy::ops(std::size_t first, std::size_t end) {
  const std::vector<OpId>& all = from_.graph(kMainGraph).ops;
  for (std::size_t i = first; i < end; ++i) copies_.push_back(copy(from_.op(all[i])));
}

/// Makes outputs of all that was made there; returns the original's tensors.
std::vector<TensorId> ProgramCopy::close_graph(std::size_t first, std::size_t end) {
  const std::vector<OpId>& all = from_.graph(kMainGraph).ops;
  std::set<TensorId> made;
  for (std::size_t i = first; i < end; ++i) {
    const Op& op = from_.op(all[i]);
    made.insert(op.outputs.begin(), op.outputs.end());
  }
  std::vector<TensorId> results;
  for (const TensorId t : made) {
    if (from_.tensor(t).memory.storage != t) continue;
    to_.ir.add_output(to_.at, inner_.at(t));
    results.push_back(t);
  }
  return results;
}

OpId ProgramCopy::run_as_graph(std::size_t first, std::size_t end, TensorId condition) {
  const GraphId graph = to_.at = to_.ir.create_graph("f");
  inner_.clear();
  captured_.clear();
  ops(first, end);
  const std::vector<TensorId> results = close_graph(first, end);
  to_.at = kMainGraph;
  std::vector<TensorId> arguments;
  for (const TensorId t : captured_) arguments.push_back(tensors_.at(t));
  const std::size_t inputs = arguments.size();
  Attrs attrs{{"graph", graph}};
  if (condition != kNone) {
    attrs = {{"then_branch", graph}, {"else_branch", graph}};
    arguments.insert(arguments.end(), arguments.begin(),
                     arguments.begin() + static_cast<std::ptrdiff_t>(inputs));
    arguments.insert(arguments.begin(), condition);
  }
  const OpId run = to_.emit(condition == kNone ? "call" : "conditional", arguments, std::move(attrs));
  for (std::uint32_t i = condition == kNone ? 0 : 1; i < arguments.size(); ++i)
    GraphEditor(to_.ir).mark_modified(run, i);
  for (std::size_t k = 0; k < results.size(); ++k) tensors_[results[k]] = to_.ir.op(run).outputs[k];
  // A tensor that was written in place lives where it lived, or with the output that it is an alias of.
  for (const auto& [t, copied] : inner_) {
    if (!tensors_.contains(t)) tensors_[t] = tensors_.at(from_.tensor(t).memory.storage);
  }
  return run;
}

}  // namespace popsr::test
