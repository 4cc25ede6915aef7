// GraphEditor::replace_schedule: ops move, and several become one merged op.
//
// A merged op is in the schedule instead of its parts. The parts stay what they were (definition, attributes,
// operands, location, noise index, seeds) and are asked whenever one tensor is looked at; nobody lists them.
// replace_schedule is the only way there: it refuses a schedule that breaks an order.

#include <algorithm>

#include "popsr/base/error.h"
#include "popsr/effects/op_order.h"
#include "popsr/ir/edit/journal.h"
#include "popsr/ir/edit/transaction.h"
#include "popsr/ir/op_def.h"
#include "popsr/transform/graph_editor.h"

namespace popsr {
namespace {

/// The slot of each position of the old schedule from `first` on. Each op is in one slot.
std::vector<std::uint32_t> slots_of(const Ir& ir, GraphId graph, std::uint32_t first,
                                    const std::vector<ScheduleSlot>& schedule) {
  POPSR_CHECK(first <= ir.graph(graph).ops.size());
  std::vector<std::uint32_t> slots(ir.graph(graph).ops.size() - first, kNone);
  for (std::uint32_t s = 0; s < schedule.size(); ++s) {
    POPSR_CHECK(schedule[s].ops.size() == 1 || (schedule[s].ops.size() > 1 && !schedule[s].merged.empty()));
    for (const OpId id : schedule[s].ops) {
      const Op& op = ir.op(id);
      POPSR_CHECK(op.graph == graph && op.schedule.part_of == kNone && op.schedule.position >= first);
      POPSR_CHECK(slots[op.schedule.position - first] == kNone);
      POPSR_CHECK(schedule[s].ops.size() == 1 || op.def->program.control == Control::kNone);
      slots[op.schedule.position - first] = s;
    }
  }
  POPSR_CHECK(std::ranges::find(slots, kNone) == slots.end());
  return slots;
}

/// Parts of one op may be in explicit order, since nobody sees it; nothing passes between them.
void check_schedule(const Ir& ir, GraphId graph, std::uint32_t first,
                    const std::vector<std::uint32_t>& slots) {
  const OpOrder order(ir, graph, first);
  for (std::uint32_t at = 0; at < slots.size(); ++at) {
    for (const OpOrder::Edge& edge : order.before(at)) {
      POPSR_CHECK(slots[edge.before] < slots[at] || (slots[edge.before] == slots[at] && !edge.data));
    }
  }
}

}  // namespace

OpId GraphEditor::merge(GraphId graph, const ScheduleSlot& slot) {
  Op merged;
  merged.id = OpId(ir_.ops_.size());
  merged.def = &ir_.registry_->at(slot.merged);
  merged.graph = graph;
  for (const OpId id : slot.ops) {
    Op& op = ir_.edit_op(id);
    op.schedule.part_of = merged.id;
    if (op.schedule.parts.empty()) {
      merged.schedule.parts.push_back(id);
    } else {  // an op that was merged before hands its parts on
      merged.schedule.parts.insert(merged.schedule.parts.end(), op.schedule.parts.begin(),
                                   op.schedule.parts.end());
      op.schedule.parts.clear();
      op.inputs.clear();
      op.outputs.clear();
    }
  }
  for (const OpId id : merged.schedule.parts) {
    Op& part = ir_.edit_op(id);
    part.schedule.part_of = merged.id;
    merged.inputs.insert(merged.inputs.end(), part.inputs.begin(), part.inputs.end());
    merged.outputs.insert(merged.outputs.end(), part.outputs.begin(), part.outputs.end());
    merged.schedule.after.insert(merged.schedule.after.end(), part.schedule.after.begin(),
                                 part.schedule.after.end());
  }
  merged.origin = ir_.ops_[merged.schedule.parts.front()].origin;
  ir_.definitions_.insert(merged.def);
  ir_.ops_.push_back(std::move(merged));
  return ir_.ops_.back().id;
}

void GraphEditor::replace_schedule(GraphId graph, std::uint32_t first,
                                   const std::vector<ScheduleSlot>& schedule) {
  check_schedule(ir_, graph, first, slots_of(ir_, graph, first, schedule));
  Transaction transaction(ir_);
  ir_.journal_->save_schedule(graph, first);
  std::vector<OpId>& ops = ir_.graphs_[graph].ops;
  ops.resize(first);  // in its place: what undoes it must find room
  for (const ScheduleSlot& slot : schedule) {
    const auto position = static_cast<std::uint32_t>(ops.size());
    ops.push_back(slot.ops.size() == 1 ? slot.ops.front() : merge(graph, slot));
    for (const OpId id : slot.ops) ir_.set_position(id, position);
    ir_.set_position(ops.back(), position);
    for (const OpId part : ir_.ops_[ops.back()].schedule.parts) ir_.set_position(part, position);
  }
  ir_.changed();
  transaction.commit();
}

}  // namespace popsr
