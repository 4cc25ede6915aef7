#include "popsr/ir/ir.h"

#include <fmt/format.h>

#include <algorithm>

#include "popsr/base/error.h"
#include "popsr/base/text.h"
#include "popsr/ir/edit/journal.h"
#include "popsr/ir/edit/transaction.h"
#include "popsr/ir/op_def.h"

namespace popsr {

std::string to_string(const TensorType& type) { return to_string(type.dtype, type.shape); }

const Attribute& Op::attribute(std::string_view name) const { return attrs[def->attr_index(name)]; }

bool rounds(const Ir& ir, const Op& op) {
  for (std::size_t k = 0; k < op.outputs.size(); ++k) {
    if (rounds(ir, op, k)) return true;
  }
  return false;
}

bool rounds(const Ir& ir, const Op& op, std::size_t output) {
  return op.def->numerics.rounding != Rounding::kNone && output < op.outputs.size() &&
         is_narrow_float(ir.tensor(op.outputs[output]).type.dtype);
}

Ir::Ir(std::int64_t replication, std::shared_ptr<const Registry> registry)
    : registry_(std::move(registry)),
      partitions_(std::make_shared<PartitionTable>(replication)),
      journal_(std::make_unique<Journal>(*this)) {
  graphs_.push_back(Graph{.id = kMainGraph});
}

Ir::~Ir() = default;

const GradientGraph* Ir::gradient_graph(GraphId id) const {
  const auto it = gradient_graphs_.find(id);
  return it == gradient_graphs_.end() ? nullptr : it->second.get();
}

Counters Ir::counters() const {
  return {.graphs = graphs_.size(),
          .tensors = tensors_.size(),
          .ops = ops_.size(),
          .streams = streams_.size(),
          .remotes = remotes_.size(),
          .ops_with_graphs = ops_with_graphs_.size(),
          .names = tensors_by_name_.size(),
          .viewed = views_.size(),
          .next_subgraph = next_subgraph_,
          .next_collision = next_collision_};
}

// Changes that can be taken back

Tensor& Ir::edit_tensor(TensorId id) {
  journal_->save_tensor(id);
  return tensors_[id];
}

Op& Ir::edit_op(OpId id) {
  journal_->save_op(id);
  return ops_[id];
}

Graph& Ir::edit_graph(GraphId id) {
  journal_->save_graph(id);
  return graphs_[id];
}

RemoteBuffer& Ir::edit_remote(RemoteId id) {
  journal_->save_remote(id);
  return remotes_[id];
}

std::vector<TensorId>& Ir::edit_views(TensorId root) {
  journal_->save_views(root);
  return views_.at(root);
}

Graph& Ir::extend_graph(GraphId id) {
  journal_->save_graph_tail(id);
  return graphs_[id];
}

Op& Ir::extend_op(OpId id) {
  journal_->save_op_tail(id);
  return ops_[id];
}

void Ir::set_first_use(TensorId tensor, OpId op) {
  if (tensors_[tensor].uses.first_use == op) return;
  journal_->save_first_use(tensor);
  tensors_[tensor].uses.first_use = op;
}

void Ir::set_index(TensorId tensor, std::uint32_t index, std::uint32_t storage_index) {
  if (tensors_[tensor].index == index && storage_indices_[tensor] == storage_index) return;
  journal_->save_index(tensor);
  tensors_[tensor].index = index;
  storage_indices_[tensor] = storage_index;
}

void Ir::set_position(OpId op, std::uint32_t position) {
  if (ops_[op].schedule.position == position) return;
  journal_->save_position(op);
  ops_[op].schedule.position = position;
}

void Ir::set_name(TensorId id, std::string_view name) {
  journal_->save_name(id);  // its present name is free for itself
  Tensor& tensor = tensors_[id];
  tensor.name = unique_name(tensor.graph, name);
  tensors_by_name_.emplace(tensor.name, id);
}

// Graphs

GraphId Ir::create_graph(std::string_view stem) {
  Transaction transaction(*this);
  const GraphId id = create_named_graph(fmt::format("{}_subgraph({})", stem, next_subgraph_++));
  transaction.commit();
  return id;
}

std::string in_words(const Graph& graph) {
  return graph.name.empty() ? "main graph" : fmt::format("graph '{}'", graph.name);
}

GraphId Ir::create_named_graph(std::string_view name) {
  const auto taken = [this](std::string_view candidate) {
    return std::ranges::any_of(graphs_, [candidate](const Graph& g) { return g.name == candidate; });
  };
  Transaction transaction(*this);
  std::string unique(name);
  for (int k = 0; taken(unique); ++k) unique = fmt::format("{}_{}", name, k);
  const GraphId id{static_cast<std::uint32_t>(graphs_.size())};
  graphs_.push_back(Graph{.id = id, .name = std::move(unique)});
  changed();
  transaction.commit();
  return id;
}

void Ir::skip_subgraph_number() {
  Transaction transaction(*this);
  ++next_subgraph_;
  transaction.commit();
}

std::string Ir::unique_name(GraphId graph, std::string_view name) {
  const std::string& prefix = graphs_[graph].name;
  const std::string base = prefix.empty() ? std::string(name) : fmt::format("{}/{}", prefix, name);
  std::string unique = base;
  while (tensors_by_name_.contains(unique)) unique = fmt::format("{}__t{}", base, next_collision_++);
  return unique;
}

void Ir::check_size(std::string_view where, const TensorType& type) const {
  std::int64_t bytes = replication() * static_cast<std::int64_t>(size_of(type.dtype));
  bool fits = true;
  // Empty tensors too: strides are products of extents.
  for (const std::int64_t extent : type.shape) {
    fits = fits && !__builtin_mul_overflow(bytes, std::max<std::int64_t>(extent, 1), &bytes);
  }
  if (fits) return;
  raise<ShapeError>("{}: tensor is too big, got {} on {} replicas, expected less than 2**63 bytes", where,
                    to_string(type), replication());
}

/// Adds a tensor; called inside a transaction, until whose end the tensor may be changed freely.
TensorId Ir::add_tensor(GraphId graph, std::string_view name, TensorType type, TensorKind kind) {
  Graph& owner = extend_graph(graph);
  Tensor tensor;
  const auto id = TensorId(tensors_.size());
  tensor.id = id;
  tensor.graph = graph;
  tensor.name = unique_name(graph, name);
  tensor.type = std::move(type);
  tensor.kind = kind;
  tensor.memory.storage = id;
  tensor.index = static_cast<std::uint32_t>(owner.tensors.size());
  tensors_.push_back(std::move(tensor));
  storage_indices_.push_back(kind == TensorKind::kRemote ? kNone : tensors_[id].index);
  tensors_by_name_.emplace(tensors_[id].name, id);
  owner.tensors.push_back(id);
  changed();
  return id;
}

TensorId Ir::add_input(GraphId graph, std::string_view name, TensorType type, Shape meta_shape, bool by_ref) {
  check_size("graph_input", type);
  if (graphs_[graph].called()) {
    raise<GraphError>(
        "graph_input: the graph is called already, got input '{}' of graph '{}', expected it before", name,
        graphs_[graph].name);
  }
  Transaction transaction(*this);
  const TensorId id = add_tensor(graph, name, std::move(type), TensorKind::kInput);
  tensors_[id].meta_shape = std::move(meta_shape);
  tensors_[id].memory.by_ref = by_ref;
  graphs_[graph].inputs.push_back(id);
  transaction.commit();
  return id;
}

void Ir::add_output(GraphId graph, TensorId tensor) {
  if (tensors_[tensor].graph != graph) {
    raise<GraphError>("graph_output: tensor of another graph, got '{}', expected one of {}",
                      tensors_[tensor].name, in_words(graphs_[graph]));
  }
  POPSR_CHECK(tensors_[tensor].kind != TensorKind::kRemote);
  Transaction transaction(*this);
  if (graphs_[graph].called()) lineage_.change(newest_epoch_);  // its calls lack the output
  extend_graph(graph).outputs.push_back(tensor);
  changed();
  transaction.commit();
}

TensorId Ir::add_variable(std::string_view name, TensorType type, std::shared_ptr<const HostBytes> data,
                          ReplicaGrouping grouping, VariableRetrievalMode retrieval, LocationId location) {
  if (grouping.replicas() != replication()) {
    raise<ReplicaError>("variable: grouping of another replica count, got {} replicas for '{}', expected {}",
                        grouping.replicas(), name, replication());
  }
  const auto expected = static_cast<std::size_t>(grouping.num_groups()) * bytes_of(type);
  if (data->size() != expected) {
    raise<ShapeError>("variable: wrong amount of data for '{}', got {} bytes, expected {}", name,
                      data->size(), expected);
  }
  Transaction transaction(*this);
  const TensorId id = add_tensor(kMainGraph, name, std::move(type), TensorKind::kVariable);
  tensors_[id].state = {
      .data = std::move(data), .grouping = std::move(grouping), .location = location, .retrieval = retrieval};
  transaction.commit();
  return id;
}

TensorId Ir::add_constant(GraphId graph, std::string_view name, TensorType type,
                          std::shared_ptr<const HostBytes> data) {
  POPSR_CHECK(data->size() == bytes_of(type));
  Transaction transaction(*this);
  const TensorId id = add_tensor(graph, name, std::move(type), TensorKind::kConstant);
  tensors_[id].state.data = std::move(data);
  transaction.commit();
  return id;
}

RemoteId Ir::add_remote_buffer(TensorType type, std::int64_t entries, Shape meta_shape) {
  check_size("remote_buffer", type);
  check_entries(entries);
  Transaction transaction(*this);
  const auto id = RemoteId(remotes_.size());
  remotes_.push_back(
      RemoteBuffer{.id = id, .type = std::move(type), .meta_shape = std::move(meta_shape), .entries = {}});
  append_entries(id, entries);
  transaction.commit();
  return id;
}

void Ir::check_entries(std::int64_t entries) {
  if (entries >= 1 && entries < std::int64_t{1} << 31) return;
  raise<AttributeValueError>(
      "remote_buffer: Entries must be a non-zero, positive integer, got {}, expected 1 to 2**31 - 1",
      entries);
}

void Ir::append_entries(RemoteId id, std::int64_t count) {
  RemoteBuffer& buffer = edit_remote(id);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::string name = fmt::format("remote_buffer_{}/{}", id.value + 1, buffer.entries.size());
    buffer.entries.push_back(add_tensor(kMainGraph, name, buffer.type, TensorKind::kRemote));
  }
}

StreamId Ir::add_stream(std::string_view name, TensorType type, bool to_device, StreamMode mode,
                        LocationId location, std::optional<ReplicaGrouping> groups) {
  check_size("stream", type);
  POPSR_CHECK(groups.has_value() == (mode == StreamMode::kGroups));
  if (groups && groups->replicas() != replication()) {
    raise<ReplicaError>("{}: grouping of another replica count, got {} replicas for '{}', expected {}",
                        to_device ? "h2d_stream" : "d2h_stream", groups->replicas(), name, replication());
  }
  Transaction transaction(*this);
  const auto id = StreamId(streams_.size());
  std::string unique(name);
  const auto taken = [this, &unique](const Stream& stream) { return stream.name == unique; };
  while (std::ranges::any_of(streams_, taken)) unique = fmt::format("{}__t{}", name, next_collision_++);
  streams_.push_back(Stream{.id = id,
                            .name = std::move(unique),
                            .type = std::move(type),
                            .to_device = to_device,
                            .mode = mode,
                            .location = location,
                            .groups = std::move(groups)});
  changed();
  transaction.commit();
  return id;
}

const std::vector<TensorId>& Ir::views(TensorId root) const {
  static const std::vector<TensorId> none;
  const auto it = views_.find(root);
  return it == views_.end() ? none : it->second;
}

TensorId Ir::find_tensor(GraphId graph, std::string_view name) const {
  if (const auto it = tensors_by_name_.find(std::string(name));
      it != tensors_by_name_.end() && tensors_[it->second].graph == graph &&
      tensors_[it->second].kind != TensorKind::kRemote) {
    return it->second;
  }
  std::vector<std::string_view> known;
  for (const TensorId id : graphs_[graph].tensors) {
    if (tensors_[id].kind != TensorKind::kRemote) known.push_back(tensors_[id].name);
  }
  raise<NameError>("get_tensor: unknown tensor, got '{}', expected one of {}", name,
                   close_matches(name, known));
}

std::vector<OpId> single_ops(const Ir& ir, GraphId graph) {
  std::vector<OpId> singles;
  singles.reserve(ir.graph(graph).ops.size());
  for (const OpId id : ir.graph(graph).ops) {
    const std::vector<OpId>& parts = ir.op(id).schedule.parts;
    if (parts.empty()) {
      singles.push_back(id);
    } else {
      singles.insert(singles.end(), parts.begin(), parts.end());
    }
  }
  return singles;
}

}  // namespace popsr
