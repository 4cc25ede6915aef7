#include "popsr/ir/print.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "popsr/ir/op_def.h"

namespace popsr {
namespace {

/// A tensor's name without the name of `graph`, which is printed around it; all of it where there is none.
std::string_view name_in(std::string_view graph, const Tensor& tensor) {
  std::string_view name = tensor.name;
  // Entries of remote buffers are the main graph's wherever they are used.
  const bool inside = !graph.empty() && name.starts_with(graph) && name.substr(graph.size()).starts_with('/');
  return inside ? name.substr(graph.size() + 1) : name;
}

std::string tensor_list(const Ir& ir, const std::vector<TensorId>& tensors, bool types,
                        std::string_view graph) {
  std::string text;
  const auto given = [](TensorId id) { return id != kNone; };
  const auto end = std::find_if(tensors.rbegin(), tensors.rend(), given).base();  // without absent last ones
  for (auto it = tensors.begin(); it != end; ++it) {
    const TensorId id = *it;
    if (!text.empty()) text += ", ";
    if (id == kNone) {
      text += "None";
      continue;
    }
    text += fmt::format("%{}", name_in(graph, ir.tensor(id)));
    if (types) text += fmt::format(" {}", to_string(ir.tensor(id).type));
  }
  return text;
}

std::string attr_text(const Ir& ir, const Attribute& value) {
  if (const auto* graph = std::get_if<GraphId>(&value)) return fmt::format("'{}'", ir.graph(*graph).name);
  if (const auto* stream = std::get_if<StreamId>(&value)) return fmt::format("'{}'", ir.stream(*stream).name);
  return to_string(value);
}

/// `graph`: the one that is printed around the op, if any.
std::string op_text(const Ir& ir, OpId id, std::string_view graph) {
  const Op& op = ir.op(id);
  std::string text;
  if (!op.outputs.empty()) text = tensor_list(ir, op.outputs, true, graph) + " = ";
  text += fmt::format("{}({}", op.def->name, tensor_list(ir, op.inputs, false, graph));
  for (std::size_t i = 0; i < op.attrs.size(); ++i) {
    if (op.attrs[i] == op.def->attrs[i].default_value) continue;
    const bool first = text.back() == '(';
    text += fmt::format("{}{}={}", first ? "" : ", ", op.def->attrs[i].name, attr_text(ir, op.attrs[i]));
  }
  text += ")";
  if (op.origin.place.ipu != 0) text += fmt::format(" on IPU {}", op.origin.place.ipu);
  if (op.origin.place.tiles == TileSet::kIo) text += " on io tiles";
  if (op.origin.location != kUnknownLocation) text += "  # " + ir.locations().to_string(op.origin.location);
  return text;
}

std::string state_of(const Graph& graph) {
  const SequenceState::Tail sequence = graph.sequence.tail();
  return fmt::format(
      "graph {} '{}' inputs {} outputs {} tensors {} ops {} next noise {} call {} views {} first call {} "
      "depth {} "
      "sequence {} {}\n",
      graph.id, graph.name, graph.inputs, graph.outputs, graph.tensors, graph.ops, graph.next.noise,
      graph.next.call, graph.has_views, graph.calls.first, graph.calls.depth, sequence.last_ordered,
      graph.sequence.since());
}

std::string state_of(const Ir& ir, const Tensor& t) {
  std::string text = fmt::format(
      "tensor {} '{}' graph {} {} {} kind {} by {} use {} at {} storage {} {} viewed {}{} home {} {} over {} "
      "views {}",
      t.id, t.name, t.graph, to_string(t.type), t.meta_shape, static_cast<int>(t.kind), t.uses.producer,
      t.uses.first_use, t.index, t.memory.storage, ir.storage_index(t.id), static_cast<int>(t.memory.viewed),
      t.memory.by_ref, t.state.home, t.state.resident, t.state.shard_over, ir.views(t.id));
  if (t.state.data) text += fmt::format(" data {}", fmt::ptr(t.state.data->data()));
  if (t.state.grouping)
    text += fmt::format(" {} {}", t.state.grouping->assignment(), static_cast<int>(t.state.retrieval));
  if (t.memory.view) text += fmt::format(" view {}", fmt::ptr(t.memory.view.get()));
  return text + "\n";
}

std::string state_of(const Ir& ir, const Op& op) {
  return fmt::format(
      "op {} graph {} {} inputs {} outputs {} noise {} call {} stochastic {} after {} modified {} "
      "position {} parts {} of {}\n",
      op.id, op.graph, print_op(ir, op.id), op.inputs, op.outputs, op.noise.index, op.call.index,
      op.noise.allow_stochastic, op.schedule.after, op.call.modified, op.schedule.position, op.schedule.parts,
      op.schedule.part_of);
}

}  // namespace

std::string print_op(const Ir& ir, OpId id) { return op_text(ir, id, {}); }

std::string print_graph(const Ir& ir, GraphId id) {
  const Graph& graph = ir.graph(id);
  // The main graph has no name.
  const std::string name = graph.name.empty() ? "main" : fmt::format("'{}'", graph.name);
  std::string text = fmt::format("graph {}({}) {{\n", name, tensor_list(ir, graph.inputs, true, graph.name));
  for (const TensorId tensor : graph.tensors) {
    const Tensor& t = ir.tensor(tensor);
    if (t.kind == TensorKind::kVariable) {
      text += fmt::format("  variable %{} {} {}\n", t.name, to_string(t.type), t.state.grouping->to_string());
      if (t.state.home != kNone)
        text.insert(text.size() - 1, fmt::format(" in %{}", ir.tensor(t.state.home).name));
    } else if (t.kind == TensorKind::kShard) {
      text +=
          fmt::format("  shard %{} {} of %{}\n", t.name, to_string(t.type), ir.tensor(t.state.resident).name);
    } else if (t.kind == TensorKind::kConstant) {
      text += fmt::format("  constant %{} {}\n", name_in(graph.name, t), to_string(t.type));
    }
  }
  for (const OpId op : graph.ops) {
    text += "  " + op_text(ir, op, graph.name) + "\n";
    for (const OpId part : ir.op(op).schedule.parts) text += "    | " + op_text(ir, part, graph.name) + "\n";
  }
  if (!graph.outputs.empty()) text += "  return " + tensor_list(ir, graph.outputs, false, graph.name) + "\n";
  return text + "}\n";
}

std::string print_ir(const Ir& ir) {
  std::string text;
  for (const GraphId id : ids<GraphId>(ir.num_graphs())) text += print_graph(ir, id);
  return text;
}

std::string print_state(const Ir& ir) {
  const Counters next = ir.counters();
  std::string text = fmt::format(
      "graphs {} tensors {} ops {} streams {} remotes {} calls {} names {} viewed {} subgraph {} collision "
      "{}\n",
      next.graphs, next.tensors, next.ops, next.streams, next.remotes, next.ops_with_graphs, next.names,
      next.viewed, next.next_subgraph, next.next_collision);
  for (const GraphId id : ids<GraphId>(next.graphs)) text += state_of(ir.graph(id));
  for (const TensorId id : ids<TensorId>(next.tensors)) text += state_of(ir, ir.tensor(id));
  for (const OpId id : ids<OpId>(next.ops)) text += state_of(ir, ir.op(id));
  for (const StreamId id : ids<StreamId>(next.streams)) {
    const Stream& stream = ir.stream(id);
    text += fmt::format("stream {} '{}' {} {} {}\n", id, stream.name, to_string(stream.type),
                        stream.to_device, static_cast<int>(stream.mode));
  }
  for (const RemoteId id : ids<RemoteId>(next.remotes)) {
    const RemoteBuffer& buffer = ir.remote(id);
    text +=
        fmt::format("remote {} {} {} {}\n", id, to_string(buffer.type), buffer.meta_shape, buffer.entries);
  }
  return text + fmt::format("calls {}\n", ir.ops_with_graphs());
}

}  // namespace popsr
