#include "popsr/ir/print.h"

#include <fmt/format.h>

#include <algorithm>

#include "popsr/ir/op_def.h"

namespace popsr {
namespace {

/// A tensor's name without that of `graph`, which is printed around it; all of it where there is none.
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
  if (const auto* stream = std::get_if<StreamRef>(&value))
    return fmt::format("'{}'", ir.stream(stream->id).name);
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
  if (op.place.ipu != 0) text += fmt::format(" on IPU {}", op.place.ipu);
  if (op.place.tiles == TileSet::kIo) text += " on io tiles";
  if (op.location != 0) text += "  # " + ir.locations().to_string(op.location);
  return text;
}

}  // namespace

std::string print_op(const Ir& ir, OpId id) { return op_text(ir, id, {}); }

std::string print_graph(const Ir& ir, GraphId id) {
  const Graph& graph = ir.graph(id);
  std::string text =
      fmt::format("graph '{}'({}) {{\n", graph.name, tensor_list(ir, graph.inputs, true, graph.name));
  for (const TensorId tensor : graph.tensors) {
    const Tensor& t = ir.tensor(tensor);
    if (t.kind == TensorKind::kVariable) {
      text += fmt::format("  variable %{} {} {}\n", t.name, to_string(t.type), t.grouping->to_string());
      if (t.home != kNone) text.insert(text.size() - 1, fmt::format(" in %{}", ir.tensor(t.home).name));
    } else if (t.kind == TensorKind::kShard) {
      text += fmt::format("  shard %{} {} of %{}\n", t.name, to_string(t.type), ir.tensor(t.resident).name);
    } else if (t.kind == TensorKind::kConstant) {
      text += fmt::format("  constant %{} {}\n", name_in(graph.name, t), to_string(t.type));
    }
  }
  for (const OpId op : graph.ops) {
    text += "  " + op_text(ir, op, graph.name) + "\n";
    for (const OpId part : ir.op(op).parts) text += "    | " + op_text(ir, part, graph.name) + "\n";
  }
  if (!graph.outputs.empty()) text += "  return " + tensor_list(ir, graph.outputs, false, graph.name) + "\n";
  return text + "}\n";
}

std::string print_ir(const Ir& ir) {
  std::string text;
  for (std::uint32_t g = 0; g < ir.num_graphs(); ++g) text += print_graph(ir, GraphId{g});
  return text;
}

}  // namespace popsr
