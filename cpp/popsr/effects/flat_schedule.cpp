#include "popsr/effects/flat_schedule.h"

#include "popsr/base/containers/recent.h"
#include "popsr/effects/fetch_ahead.h"
#include "popsr/ir/op_def.h"

namespace popsr {

class FlatSchedule::Builder {
 public:
  Builder(const Ir& ir, FlatSchedule& schedule)
      : schedule_(schedule), all_(ReplicaGrouping::from_stride(ir.replication())) {}

  void add(const Op& op) {
    FlatOp flat{.def = op.def, .id = op.id, .inputs = end()};
    schedule_.lists_.insert(schedule_.lists_.end(), op.inputs.begin(), op.inputs.end());
    flat.outputs = end();
    schedule_.lists_.insert(schedule_.lists_.end(), op.outputs.begin(), op.outputs.end());
    const ProgramAspect& program = op.def->program;
    flat.merged = !op.schedule.parts.empty();
    flat.alone = program.control == Control::kNone && program.remote == Remote::kNone && !flat.merged;
    flat.modifies = !op.def->memory.effects.empty() || !op.call.modified.empty() || flat.merged;
    flat.view = op.def->memory.view != nullptr;
    flat.ordered = !op.schedule.after.empty();
    if (op.def->replicas.collective != Collective::kNone && !flat.merged) flat.groups = number_of(op);
    schedule_.ops_.push_back(flat);
  }

 private:
  /// Key of groups: ReplicaGrouping::identity().
  struct GroupsKey {
    std::uint64_t identity = 0;
    bool operator==(const GroupsKey&) const = default;
    std::uint64_t hash() const { return identity * kHashFactor; }
  };

  std::uint32_t end() const { return static_cast<std::uint32_t>(schedule_.lists_.size()); }

  std::uint32_t number_of(const Op& op) {
    const auto* const own = std::get_if<ReplicaGrouping>(&op.attribute(kGroup.name));
    const ReplicaGrouping& groups = own == nullptr ? all_ : *own;
    const GroupsKey key{groups.identity()};
    if (const std::uint32_t* const known = numbers_.find(key)) return *known;
    const auto number = static_cast<std::uint32_t>(schedule_.groups_.size());
    schedule_.groups_.push_back(groups);
    numbers_.put(key, number);
    return number;
  }

  FlatSchedule& schedule_;
  ReplicaGrouping all_;  ///< Groups of a collective that names none.
  Recent<GroupsKey, std::uint32_t> numbers_;
};

FlatSchedule::FlatSchedule(const Ir& ir, GraphId graph) {
  const std::vector<OpId>& ops = ir.graph(graph).ops;
  ops_.reserve(ops.size());
  lists_.reserve(3 * ops.size());
  Builder builder(ir, *this);
  for (std::size_t at = 0; at < ops.size(); ++at) {
    fetch_ahead(ir, ops, at);
    builder.add(ir.op(ops[at]));
  }
}

}  // namespace popsr
