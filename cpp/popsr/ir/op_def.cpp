#include "popsr/ir/op_def.h"

#include <algorithm>

#include "popsr/base/error.h"
#include "popsr/base/text.h"

namespace popsr {

PartitionId meet_of_inputs(const RuleContext& context, std::size_t) {
  PartitionId fact = context.exec;
  for (std::size_t i = 0; i < context.inputs.size(); ++i) {
    if (context.op.def->influences(i)) fact = context.table.meet(fact, context.inputs[i]);
  }
  return fact;
}

PartitionId equal_everywhere(const RuleContext& context, std::size_t) { return context.exec; }

bool and_of_inputs(const PopartContext& context, std::size_t) {
  return std::ranges::find(context.inputs, false) == context.inputs.end();
}

std::string_view InferContext::name() const { return op.def->name; }

std::size_t OpDef::attr_index(std::string_view attr) const {
  // Handles and definitions share the text of the name: most look-ups compare pointers alone.
  for (std::size_t i = 0; i < attrs.size(); ++i) {
    if (attrs[i].name.data() == attr.data() && attrs[i].name.size() == attr.size()) return i;
  }
  for (std::size_t i = 0; i < attrs.size(); ++i) {
    if (attrs[i].name == attr) return i;
  }
  raise<InternalError>("{}: asks for an attribute that it does not declare, got '{}'", name, attr);
}

std::vector<Effect> effects_of(const Op& op) {
  std::vector<Effect> effects = op.def->memory.effects;
  std::erase_if(effects, [&op](const Effect& effect) {
    return effect.input >= op.inputs.size() || op.inputs[effect.input] == kNone;
  });
  return effects;
}

bool OpDef::writes(std::size_t input) const {
  return std::ranges::any_of(memory.effects, [input](const Effect& effect) { return effect.input == input; });
}

ReplicaGrouping group_of(const Ir& ir, const Op& op) {
  if (auto group = op.find(kGroup)) return *std::move(group);
  return ReplicaGrouping::from_stride(ir.replication());
}

std::optional<ReplicaGrouping> collective_groups(const Ir& ir, const Op& op) {
  if (op.def->replicas.peers == Peers::kNone) return std::nullopt;
  return op.def->replicas.peers == Peers::kAll ? ReplicaGrouping::from_stride(ir.replication())
                                               : group_of(ir, op);
}

bool OpDef::is_linear() const {
  return moves() || numerics.linear != Linear::kNone || replicas.collective != Collective::kNone;
}

bool OpDef::has_rule() const {
  return replicas.partition != meet_of_inputs ||
         (kernel.collective == nullptr && program.remote != Remote::kStores);
}

void GradAspect::apply(Grad& grad) const {
  if (rule != nullptr) return rule(grad);
  for (std::size_t i = 0; i < grad.op().inputs.size(); ++i) {
    if (!grad.differentiates(i)) continue;
    if (each != nullptr) {
      grad.set(i, each(grad, i));
    } else if (i < inputs.size() && inputs[i] != nullptr) {
      grad.set(i, inputs[i](grad));
    }
  }
}

GradAspect per_input(std::vector<InputGradFn> inputs) { return {.inputs = std::move(inputs)}; }

void Registry::add(OpDef def) {
  std::string name(def.name);
  const bool fresh = defs_.emplace(std::move(name), std::move(def)).second;
  POPSR_CHECK(fresh);
}

const OpDef& Registry::at(std::string_view name) const {
  if (const auto it = defs_.find(name); it != defs_.end()) return it->second;
  raise<NameError>("registry: unknown op, got '{}', expected one of {}", name, close_matches(name, names()));
}

std::vector<std::string_view> Registry::names() const {
  std::vector<std::string_view> all;
  all.reserve(defs_.size());
  for (const auto& [name, def] : defs_) all.push_back(name);
  return all;
}

void Registry::replace(OpDef def) {
  const auto it = defs_.find(def.name);
  POPSR_CHECK(it != defs_.end());
  it->second = std::move(def);
}

std::optional<std::int64_t> known_offset(const Ir& ir, const Op& op) {
  for (std::size_t i = 0; i < op.inputs.size(); ++i) {
    if (op.def->inputs[i].name != "offset" || op.inputs[i] == kNone) continue;
    const Tensor& offset = ir.tensor(op.inputs[i]);
    if (offset.kind == TensorKind::kConstant)
      return read_integer(offset.state.data->data(), offset.type.dtype);
    return std::nullopt;
  }
  return op.find(kEntry);
}

}  // namespace popsr
