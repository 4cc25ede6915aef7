// Ir::emit: the one way an op comes into a program.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "popsr/base/error.h"
#include "popsr/base/text.h"
#include "popsr/ir/calls/called_graphs.h"
#include "popsr/ir/edit/journal.h"
#include "popsr/ir/edit/transaction.h"
#include "popsr/ir/op_def.h"

namespace popsr {
namespace {

void check_count(const OpDef& def, const std::vector<TensorId>& inputs) {
  const bool variadic = !def.inputs.empty() && def.inputs.back().variadic;
  if (inputs.size() > def.inputs.size() && !variadic) {
    raise<GraphError>("{}: too many inputs, got {}, expected at most {}", def.name, inputs.size(),
                      def.inputs.size());
  }
  for (std::size_t i = 0; i < def.inputs.size(); ++i) {
    const bool given = i < inputs.size() && inputs[i] != kNone;
    if (!given && !def.inputs[i].optional && !def.inputs[i].variadic) {
      raise<GraphError>("{}: input {} is missing, got {} inputs, expected a tensor for it", def.name,
                        def.inputs[i].name, inputs.size());
    }
  }
}

std::string accepted(DTypeSet set) {
  std::string text;
  for (const DTypeInfo& each : kDTypes) {
    if (set.contains(each.dtype)) text += (text.empty() ? "" : ", ") + std::string(each.name);
  }
  return text;
}

/// The advice for carriers, and for float8 operands beside wider floats; empty for others.
std::string conversion(const Registry& registry, const OpDef& def, DTypeSet set, DType given) {
  if (kCarriers.contains(given) && set.contains(DType::kFloat32)) {
    return fmt::format(": {} has no arithmetic, see cast (to float32)", info(given).name);
  }
  if (kFloat8.contains(given) && set.contains(DType::kFloat32)) {
    const std::string scaled = std::string(def.name) + "_pow2scaled";
    const std::string op = std::ranges::count(registry.names(), scaled) == 0 ? "" : ", or " + scaled;
    return ": see pow2scale_cast_from_fp8" + op;
  }
  const bool widens = set.intersects(kFloat8) && !set.contains(DType::kFloat32);
  return widens && info(given).kind == DTypeKind::kFloat ? ": see pow2scale_cast_to_fp8" : "";
}

bool matches(const Attribute& value, AttrType type) {
  switch (type) {
    case AttrType::kBool:
      return std::holds_alternative<bool>(value);
    case AttrType::kInt:
      return std::holds_alternative<std::int64_t>(value);
    case AttrType::kFloat:
      return std::holds_alternative<double>(value);
    case AttrType::kString:
      return std::holds_alternative<std::string>(value);
    case AttrType::kInts:
      return std::holds_alternative<std::vector<std::int64_t>>(value);
    case AttrType::kFloats:
      return std::holds_alternative<std::vector<double>>(value);
    case AttrType::kDType:
      return std::holds_alternative<DType>(value);
    case AttrType::kGraph:
      return std::holds_alternative<GraphId>(value);
    case AttrType::kStream:
      return std::holds_alternative<StreamId>(value);
    case AttrType::kRemote:
      return std::holds_alternative<RemoteId>(value);
    case AttrType::kGrouping:
      return std::holds_alternative<ReplicaGrouping>(value);
  }
  return false;
}

void check_choice(const OpDef& def, const AttrDef& attr, const Attribute& value) {
  if (attr.choices.empty()) return;
  const auto& text = std::get<std::string>(value);
  if (std::ranges::find(attr.choices, text) != attr.choices.end()) return;
  raise<AttributeValueError>("{}: unknown {}, got '{}', expected one of '{}'", def.name, attr.name, text,
                             fmt::join(attr.choices, "', '"));
}

/// True if `from` calls `target`, itself or through the graphs it calls.
bool calls(const Ir& ir, GraphId from, GraphId target) {
  std::vector<GraphId> stack{from};
  std::set<GraphId> seen{from};
  while (!stack.empty()) {
    const GraphId graph = stack.back();
    stack.pop_back();
    if (graph == target) return true;
    for (const OpId id : ir.graph(graph).ops) {
      for (const CalledGraph& called : called_graphs(ir, ir.op(id))) {
        if (seen.insert(called.graph).second) stack.push_back(called.graph);
      }
    }
  }
  return false;
}

void check_depth(const Ir& ir, const Op& op) {
  for (const CalledGraph& called : called_graphs(ir, op)) {
    const Graph& callee = ir.graph(called.graph);
    popsr::check_depth(op.def->name, callee.name, callee.calls.depth);
  }
}

/// The IR knows no recursion: analysis, transforms and runtime walk called graphs to their end.
void check_not_recursive(const Ir& ir, const Op& op) {
  // Nobody calls the graph that is being written: the common case.
  if (!ir.graph(op.graph).called()) return;
  for (const CalledGraph& called : called_graphs(ir, op)) {
    if (!calls(ir, called.graph, op.graph)) continue;
    raise<GraphError>("{}: {} calls {} already, got a recursion, expected none", op.def->name,
                      in_words(ir.graph(called.graph)), in_words(ir.graph(op.graph)));
  }
}

}  // namespace

void Ir::check_inputs(const OpDef& def, GraphId graph, const std::vector<TensorId>& inputs) const {
  check_count(def, inputs);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i] == kNone) continue;
    const Tensor& tensor = tensors_[inputs[i]];
    const InputDef& expected = def.input(i);
    if (tensor.graph != graph) {
      raise<GraphError>("{}: input {} is of another graph, got '{}' of {}, expected {}", def.name,
                        expected.name, tensor.name, in_words(graphs_[tensor.graph]),
                        in_words(graphs_[graph]));
    }
    if (tensor.kind == TensorKind::kRemote) {
      raise<GraphError>(
          "{}: input {} is an entry of a remote buffer, got '{}', expected what remote_load gives", def.name,
          expected.name, tensor.name);
    }
    if (tensor.state.home != kNone) {
      raise<GraphError>(
          "{}: input {} is for the host only, got '{}', expected {}", def.name, expected.name, tensor.name,
          tensors_[tensor.state.home].kind == TensorKind::kShard ? "its shard" : "what remote_load gives");
    }
    if (!expected.dtypes.contains(tensor.type.dtype)) {
      raise<DTypeError>("{}: input {} has the wrong dtype, got {} '{}', expected one of {}{}", def.name,
                        expected.name, to_string(tensor.type), tensor.name, accepted(expected.dtypes),
                        conversion(registry(), def, expected.dtypes, tensor.type.dtype));
    }
    if (def.writes(i)) check_writable(def.name, expected.name, tensor);
  }
}

void Ir::check_writable(std::string_view op, std::string_view input, const Tensor& tensor) const {
  for_each_root(*this, tensor.id, [&](TensorId root) {
    if (tensors_[root].kind != TensorKind::kConstant) return;
    raise<GraphError>("{}: input {} is modified but constant, got '{}', expected a variable or an activation",
                      op, input, tensor.name);
  });
  const View* const view = view_of(*this, tensor.id);
  if (view == nullptr || !view->repeats) return;
  raise<GraphError>(
      "{}: input {} is modified but it, or what it is a part of, holds an element twice, got '{}', expected "
      "a view of different elements",
      op, input, tensor.name);
}

std::vector<Attribute> Ir::bind_attributes(const OpDef& def, const std::vector<NamedAttribute>& given) const {
  std::vector<Attribute> bound(def.attrs.size());
  for (std::size_t i = 0; i < def.attrs.size(); ++i) bound[i] = def.attrs[i].default_value;
  for (const auto& [name, value] : given) {
    const auto it = std::ranges::find(def.attrs, name, &AttrDef::name);
    if (it == def.attrs.end()) {
      raise<AttributeValueError>("{}: unknown attribute, got '{}', expected one of its {}", def.name, name,
                                 def.attrs.size());
    }
    if (std::holds_alternative<std::monostate>(value) && it->has_default) continue;
    if (!matches(value, it->type)) {
      raise<AttributeValueError>("{}: attribute {} has the wrong type, got {}", def.name, name,
                                 to_string(value));
    }
    check_choice(def, *it, value);
    bound[static_cast<std::size_t>(it - def.attrs.begin())] = value;
  }
  for (std::size_t i = 0; i < def.attrs.size(); ++i) {
    if (!def.attrs[i].has_default && std::holds_alternative<std::monostate>(bound[i])) {
      raise<AttributeValueError>("{}: attribute {} is missing", def.name, def.attrs[i].name);
    }
  }
  return bound;
}

void Ir::number_op(Op& op) {
  Graph& graph = extend_graph(op.graph);
  if (op.def->program.control != Control::kNone) {
    op.call.index = graph.next.call++;
  } else if (op.def->numerics.random || rounds(*this, op)) {
    op.noise.index = graph.next.noise++;
  }
}

void Ir::add_view(const Op& op) {
  std::shared_ptr<const View> view = make_view(*this, op);
  journal_->save_viewed(op.outputs[0]);
  tensors_[op.outputs[0]].memory.view = view;
  extend_graph(op.graph).has_views = true;
  for (const Region& region : view->regions) {
    const Viewed viewed = region.whole ? Viewed::kWhole : Viewed::kPartly;
    if (viewed > tensors_[region.root].memory.viewed) {
      journal_->save_viewed(region.root);
      tensors_[region.root].memory.viewed = viewed;
    }
    journal_->save_views_tail(region.root);
    views_[region.root].push_back(op.outputs[0]);
  }
}

OpId Ir::emit(GraphId graph, std::string_view name, std::vector<TensorId> inputs, EmitArgs args) {
  const OpDef& def = registry_->at(name);
  check_inputs(def, graph, inputs);
  Op op;
  op.id = OpId(ops_.size());
  op.def = &def;
  op.graph = graph;
  op.attrs = bind_attributes(def, args.attrs);
  op.inputs = std::move(inputs);
  op.origin = args.origin;
  op.noise.allow_stochastic = args.allow_stochastic;
  const std::vector<OutputDef> outputs = def.infer(InferContext{*this, op});
  for (const OutputDef& output : outputs) check_size(name, output.type);
  check_not_recursive(*this, op);
  check_depth(*this, op);

  Transaction transaction(*this);
  definitions_.insert(&def);
  Graph& owner = extend_graph(graph);
  for (std::size_t k = 0; k < outputs.size(); ++k) {
    const std::string stem =
        k < args.output_names.size() ? args.output_names[k] : fmt::format("{}_out", name);
    const TensorId id = add_tensor(graph, stem, outputs[k].type, TensorKind::kActivation);
    tensors_[id].uses.producer = op.id;
    tensors_[id].meta_shape = outputs[k].meta_shape;
    op.outputs.push_back(id);
  }
  for (const TensorId input : op.inputs) {
    if (input != kNone) set_first_use(input, std::min(tensors_[input].uses.first_use, op.id));
  }
  for (const Effect& effect : effects_of(op)) {
    tensors_[op.outputs[effect.output]].memory.storage = tensors_[op.inputs[effect.input]].memory.storage;
    storage_indices_[op.outputs[effect.output]] = storage_indices_[op.inputs[effect.input]];
  }
  if (def.memory.view) add_view(op);
  number_op(op);
  for (const CalledGraph& called : called_graphs(*this, op)) {
    Graph& callee = extend_graph(called.graph);
    callee.calls.first = std::min(callee.calls.first, op.id);
    owner.calls.depth = std::max(owner.calls.depth, callee.calls.depth + 1);
  }
  if (def.program.control != Control::kNone) ops_with_graphs_.push_back(op.id);
  if (args.sequence == SequenceMode::kOrdered && !owner.sequence.since().empty()) journal_->save_since(graph);
  op.schedule.after = owner.sequence.place(op.id, args.sequence);
  op.schedule.position = static_cast<std::uint32_t>(owner.ops.size());
  owner.ops.push_back(op.id);
  ops_.push_back(std::move(op));
  changed();
  transaction.commit();
  return OpId(ops_.size() - 1);
}

}  // namespace popsr
