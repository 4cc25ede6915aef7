#include "popsr/transform/stochastic_rounding.h"

#include "popsr/base/error.h"
#include "popsr/ir/op_def.h"

namespace popsr {

void assign_seeds(Ir& ir, SeedRule rule) {
  for (OpId id = 0; id < ir.num_ops(); ++id) {
    const Op& op = ir.op(id);
    if (rounds(ir, op) && op.allow_stochastic) ir.set_seeds(id, rule);
  }
}

void clear_seeds(Ir& ir) {
  for (OpId id = 0; id < ir.num_ops(); ++id) ir.set_seeds(id, std::nullopt);
}

void verify_seeds(const Ir& ir, bool enabled) {
  for (OpId id = 0; id < ir.num_ops(); ++id) {
    const Op& op = ir.op(id);
    const bool expected = enabled && rounds(ir, op) && op.allow_stochastic;
    if (op.seeds.has_value() == expected) continue;
    raise<GraphError>(
        "{}: op {} seed rule while stochastic rounding is {}, got '{}' made at {}, expected the transform "
        "to run last",
        op.def->name, expected ? "has no" : "has a", enabled ? "on" : "off",
        op.outputs.empty() ? "" : ir.tensor(op.outputs[0]).name, ir.locations().to_string(op.location));
  }
}

}  // namespace popsr
