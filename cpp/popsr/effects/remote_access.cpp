#include "popsr/effects/remote_access.h"

#include <set>

#include "popsr/base/threads/deep_stack.h"
#include "popsr/ir/calls/called_graphs.h"
#include "popsr/ir/op_def.h"

namespace popsr {
namespace {

/// The accesses of a merged op's parts, one after another.
std::vector<TensorId> of_parts(const Ir& ir, const Op& op,
                               std::vector<TensorId> (*of)(const Ir&, const Op&)) {
  std::vector<TensorId> all;
  for (const OpId part : op.schedule.parts) {
    const std::vector<TensorId> own = of(ir, ir.op(part));
    all.insert(all.end(), own.begin(), own.end());
  }
  return all;
}

/// True if all_inputs() and all_outputs() are the lists that the op has.
bool has_own_operands(const Op& op) {
  return op.schedule.parts.empty() && op.def->program.remote == Remote::kNone;
}

}  // namespace

std::vector<TensorId> remote_entries(const Ir& ir, const Op& op) {
  if (!op.schedule.parts.empty()) return of_parts(ir, op, remote_entries);
  if (op.def->program.remote == Remote::kNone) return {};
  const RemoteBuffer& buffer = ir.remote(op.get(kRemoteBuffer));
  const std::optional<std::int64_t> offset = known_offset(ir, op);
  if (!offset) return buffer.entries;
  return {buffer.entries[static_cast<std::size_t>(*offset)]};
}

std::vector<TensorId> all_inputs(const Ir& ir, const Op& op) {
  if (!op.schedule.parts.empty()) return of_parts(ir, op, all_inputs);
  std::vector<TensorId> inputs = op.inputs;
  if (op.def->program.remote == Remote::kNone) return inputs;
  const std::vector<TensorId> entries = remote_entries(ir, op);
  inputs.resize(op.def->inputs.size(), kNone);
  inputs.insert(inputs.end(), entries.begin(), entries.end());
  return inputs;
}

std::vector<TensorId> all_outputs(const Ir& ir, const Op& op) {
  if (!op.schedule.parts.empty()) return of_parts(ir, op, all_outputs);
  std::vector<TensorId> outputs = op.outputs;
  if (op.def->program.remote != Remote::kStores) return outputs;
  const std::vector<TensorId> entries = remote_entries(ir, op);
  outputs.insert(outputs.end(), entries.begin(), entries.end());
  return outputs;
}

std::span<const TensorId> all_inputs(const Ir& ir, const Op& op, std::vector<TensorId>& room) {
  if (has_own_operands(op)) return op.inputs;
  return room = all_inputs(ir, op);
}

std::span<const TensorId> all_outputs(const Ir& ir, const Op& op, std::vector<TensorId>& room) {
  if (has_own_operands(op)) return op.outputs;
  return room = all_outputs(ir, op);
}

const std::vector<TensorId>& RemoteAccess::of(GraphId graph) const { return reached(graph, false, *memo_); }

const std::vector<TensorId>& RemoteAccess::stored(GraphId graph) const {
  return reached(graph, true, *stored_);
}

const std::vector<TensorId>& RemoteAccess::reached(GraphId id, bool stores_only, Memo& memo) const {
  if (const auto it = memo.find(id); it != memo.end()) return it->second;
  if (ir_.num_remotes() == 0) return memo[id];
  return memo[id] = with_deep_stack([&] { return find(id, stores_only, memo); });
}

std::vector<TensorId> RemoteAccess::find(GraphId id, bool stores_only, Memo& memo) const {
  std::set<TensorId> all;
  if (id == kMainGraph && !stores_only) {
    for (const RemoteId b : ids<RemoteId>(ir_.num_remotes())) {
      all.insert(ir_.remote(b).entries.begin(), ir_.remote(b).entries.end());
    }
  }
  for (const OpId op_id : single_ops(ir_, id)) {
    const Op& op = ir_.op(op_id);
    if (!runs_body(op)) continue;
    for (const CalledGraph& called : called_graphs(ir_, op)) {
      const std::vector<TensorId>& inner = reached(called.graph, stores_only, memo);
      all.insert(inner.begin(), inner.end());
    }
    if (stores_only && op.def->program.remote != Remote::kStores) continue;
    const std::vector<TensorId> entries = remote_entries(ir_, op);
    all.insert(entries.begin(), entries.end());
  }
  return {all.begin(), all.end()};
}

}  // namespace popsr
