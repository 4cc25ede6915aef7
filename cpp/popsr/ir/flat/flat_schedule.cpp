#include "popsr/ir/flat/flat_schedule.h"

#include <algorithm>

#include "popsr/ir/flat/fetch_ahead.h"
#include "popsr/ir/op_def.h"

namespace popsr {
namespace {

/// FlatOp::meets of an op that stands alone and makes no view.
bool meets_inputs(const Ir& ir, const Op& op) {
  const OpDef& def = *op.def;
  if (def.replicas.partition != meet_of_inputs || !def.has_rule() || rounds(ir, op)) return false;
  const auto is_stream = [](const AttrDef& attr) { return attr.type == AttrType::kStream; };
  if (std::ranges::any_of(def.attrs, is_stream)) return false;
  for (std::size_t i = 0; i < op.inputs.size(); ++i) {
    if (!def.influences(i)) return false;
  }
  return true;
}

}  // namespace

void FlatSchedule::grow(const Ir& ir, GraphId graph) {
  const std::vector<OpId>& ops = ir.graph(graph).ops;
  if (ops_.empty() && ops.size() > 1) {
    ops_.reserve(ops.size());
    lists_.reserve(3 * ops.size());
  }
  for (std::size_t at = ops_.size(); at < ops.size(); ++at) {
    fetch_ahead(ir, ops, at);
    add(ir, ir.op(ops[at]));
  }
}

void FlatSchedule::add(const Ir& ir, const Op& op) {
  FlatOp flat;
  flat.def = op.def;
  flat.id = op.id;
  flat.inputs = static_cast<std::uint32_t>(lists_.size());
  lists_.insert(lists_.end(), op.inputs.begin(), op.inputs.end());
  flat.outputs = static_cast<std::uint32_t>(lists_.size());
  lists_.insert(lists_.end(), op.outputs.begin(), op.outputs.end());
  const ProgramAspect& program = op.def->program;
  flat.merged = !op.schedule.parts.empty();
  flat.alone = program.control == Control::kNone && program.remote == Remote::kNone && !flat.merged;
  flat.modifies = !op.def->memory.effects.empty() || !op.call.modified.empty() || flat.merged;
  flat.view = op.def->memory.view != nullptr;
  flat.ordered = !op.schedule.after.empty();
  flat.floats = std::ranges::all_of(
      op.outputs, [&ir](TensorId output) { return is_float(ir.tensor(output).type.dtype); });
  flat.meets = flat.alone && !flat.view && meets_inputs(ir, op);
  if (op.def->replicas.collective != Collective::kNone && !flat.merged) {
    flat.groups = number_of_groups(ir, op);
    if (op.def->replicas.collective == Collective::kReduce) flat.reduction = op.get(kReduction);
  }
  ops_.push_back(flat);
}

/// Looks among the last groups alone: a program has few.
std::uint32_t FlatSchedule::number_of_groups(const Ir& ir, const Op& op) {
  constexpr std::size_t kLast = 8;
  const auto* const own = std::get_if<ReplicaGrouping>(&op.attribute(kGroup.name));
  const std::uint64_t identity = own == nullptr ? 0 : own->identity();
  for (std::size_t i = groups_.size(); i > 0 && i + kLast > groups_.size(); --i) {
    const ReplicaGrouping& known = groups_[i - 1];
    const bool same = own == nullptr ? known.num_groups() == 1 : known.identity() == identity;
    if (same) return static_cast<std::uint32_t>(i - 1);
  }
  groups_.push_back(own == nullptr ? ReplicaGrouping::from_stride(ir.replication()) : *own);
  return static_cast<std::uint32_t>(groups_.size() - 1);
}

}  // namespace popsr
