#include "popsr/analysis/seed_rules.h"

#include <fmt/format.h>

#include <algorithm>

#include "popsr/analysis/popart/popart_analysis.h"
#include "popsr/base/error.h"
#include "popsr/ir/ir.h"
#include "popsr/ir/op_def.h"

namespace popsr {

namespace {

bool takes_part(const Ir& ir, const Op& op) { return op.noise.allow_stochastic && rounds(ir, op); }

std::vector<SeedRule> popart_rules(const Ir& ir) {
  const PopartAnalysis facts(ir);
  std::vector<SeedRule> rules(ir.num_ops(), SeedRule::kDiffering);
  for (const OpId id : ids<OpId>(ir.num_ops())) {
    const Op& op = ir.op(id);
    if (!takes_part(ir, op)) continue;
    const OpId whole = op.schedule.part_of == kNone ? id : op.schedule.part_of;
    if (facts.are_outputs_equal(whole)) rules[id.index()] = SeedRule::kIdentical;
  }
  return rules;
}

}  // namespace

std::string_view to_string(SeedRule rule) {
  switch (rule) {
    case SeedRule::kPartition:
      return "partition";
    case SeedRule::kIdentical:
      return "identical";
    case SeedRule::kDiffering:
      return "differing";
  }
  POPSR_CHECK(false);
}

SeedRules SeedRules::of_mode(const Ir& ir, std::string_view mode) {
  if (mode == "partition") return SeedRules(SeedRule::kPartition);
  if (mode == "identical") return SeedRules(SeedRule::kIdentical);
  if (mode != "popart") {
    raise<AttributeValueError>(
        "stochastic_rounding: unknown mode, got '{}', expected 'partition', 'popart' or 'identical'", mode);
  }
  SeedRules rules;
  rules.each_ = std::make_shared<const std::vector<SeedRule>>(popart_rules(ir));
  rules.ops_ = ir.num_ops();
  return rules;
}

SeedRules SeedRules::for_present_ops(const Ir& ir) const {
  SeedRules rules = *this;
  rules.ops_ = std::min(rules.ops_, ir.num_ops());
  return rules;
}

std::optional<SeedRule> SeedRules::known(const Ir& ir, const Op& op) const {
  if (op.id.index() >= ops_ || !takes_part(ir, op)) return std::nullopt;
  return each_ == nullptr ? rule_ : (*each_)[op.id.index()];
}

bool SeedRules::agree(const Ir& ir, const SeedRules& other, std::size_t ops) const {
  if (rule_ == other.rule_ && each_ == other.each_ && std::min(ops, ops_) == std::min(ops, other.ops_))
    return true;
  for (const OpId id : ids<OpId>(ops)) {
    if (of(ir, ir.op(id)) != other.of(ir, ir.op(id))) return false;
  }
  return true;
}

void SeedRules::verify(const Ir& ir, bool enabled) const {
  for (const OpId id : ids<OpId>(ir.num_ops())) {
    const Op& op = ir.op(id);
    const bool expected = enabled && takes_part(ir, op);
    if (of(ir, op).has_value() == expected) continue;
    raise<GraphError>(
        "{}: op {} seed rule while stochastic rounding is {}, got '{}' made at {}, expected the transform "
        "to run last",
        op.def->name, expected ? "has no" : "has a", enabled ? "on" : "off",
        op.outputs.empty() ? "" : ir.tensor(op.outputs[0]).name,
        ir.locations().to_string(op.origin.location));
  }
}

std::string SeedRules::to_string() const {
  std::string text = rule_ ? std::string(popsr::to_string(*rule_)) : "nearest";
  if (each_ != nullptr) {
    text.clear();
    for (const SeedRule rule : *each_) text += popsr::to_string(rule).front();
  }
  if (ops_ != std::numeric_limits<std::size_t>::max()) text += fmt::format(" for {} ops", ops_);
  return text;
}

}  // namespace popsr
