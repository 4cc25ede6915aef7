#include "popsr/analysis/memory/fact_replay.h"

#include "popsr/ir/op_def.h"

namespace popsr {

void replay(const Ir& ir, const Context& context, const Op& op, std::size_t at, MemoryFacts& memory) {
  if (op.def->memory.view != nullptr) return;
  const auto write = [&](TensorId tensor, PartitionId fact) {
    const std::uint32_t slot = ir.storage_index(tensor);
    if (slot != kNone) memory.write(tensor, slot, fact);
  };
  const std::span<const PartitionId> outputs = context.ops.outputs(at);
  std::vector<TensorId> room;
  const std::span<const TensorId> written = all_outputs(ir, op, room);
  for (std::size_t k = 0; k < written.size(); ++k) write(written[k], outputs[k]);
  if (op.def->program.control == Control::kNone) return;
  const FactView facts = context.ops[at];
  for (const auto& [tensor, fact] : facts.written) write(tensor, fact);
  memory.write(facts.pieces);
}

void replay(const Ir& ir, const Context& context, const FlatSchedule& schedule, std::size_t at,
            MemoryFacts& memory) {
  if (!schedule[at].alone) return replay(ir, context, ir.op(schedule[at].id), at, memory);
  if (schedule[at].view) return;
  const std::span<const PartitionId> facts = context.ops.outputs(at);
  const std::span<const TensorId> outputs = schedule.outputs(at);
  for (std::size_t k = 0; k < outputs.size(); ++k)
    memory.write(outputs[k], ir.storage_index(outputs[k]), facts[k]);
}

}  // namespace popsr
