#include "fuzz/op_pools.h"

#include <algorithm>

#include "popsr/kernels/contract/elementwise.h"

namespace popsr::test {
namespace {

bool has_attribute(const OpDef& def, std::string_view name) {
  return std::ranges::find(def.attrs, name, &AttrDef::name) != def.attrs.end();
}

bool needs_attributes(const OpDef& def) { return !std::ranges::all_of(def.attrs, &AttrDef::has_default); }

/// True if the op computes new values from its tensors, on each replica alone.
bool is_pure(const OpDef& def) {
  return def.kernel.eval != nullptr && def.memory.effects.empty() && def.memory.view == nullptr &&
         def.program.remote == Remote::kNone && !def.numerics.random;
}

bool writes_the_first_operand(const OpDef& def) {
  return def.kernel.eval != nullptr && def.memory.effects.size() == 1 && def.memory.effects[0].input == 0 &&
         def.program.remote == Remote::kNone && required_operands(def) <= 2;
}

bool is_collective(const OpDef& def) {
  return def.kernel.collective != nullptr && def.replicas.peers == Peers::kGroup &&
         def.memory.effects.empty() && has_attribute(def, kGroup.name) && required_operands(def) == 1 &&
         !def.program.internal;
}

void sort_in(const OpDef& def, OpPools& pools) {
  if (writes_the_first_operand(def)) pools.in_place.push_back(def.name);
  if (needs_attributes(def)) return;
  if (is_collective(def)) pools.collectives.push_back(def.name);
  if (!is_pure(def)) return;
  if (def.kernel.elementwise) {
    const int operands = kernels::row_of(*def.kernel.elementwise).operands;
    if (operands == 1) pools.unary.push_back(def.name);
    if (operands == 2) pools.binary.push_back(def.name);
  } else if (has_attribute(def, "keepdims")) {
    pools.over_axes.push_back(def.name);
  } else if (required_operands(def) == 1 && !def.program.internal) {
    pools.others.push_back(def.name);
  }
}

}  // namespace

std::size_t required_operands(const OpDef& def) {
  return static_cast<std::size_t>(std::ranges::count(def.inputs, false, &InputDef::optional));
}

OpPools op_pools(const Registry& registry) {
  OpPools pools;
  for (const std::string_view name : registry.names()) sort_in(registry.at(name), pools);
  return pools;
}

}  // namespace popsr::test
