#include "popsr/runtime/session/assumptions.h"

#include "popsr/ir/op_def.h"

namespace popsr {

TensorId holder(const Ir& ir, TensorId variable) {
  const TensorId home = ir.tensor(variable).state.home;
  return home == kNone ? variable : home;
}

bool is_small(const Stream& stream) { return num_elements(stream.type.shape) <= kSmallStream; }

PartitionId equal_rows_of(const Ir& ir, const RowGroups& groups, TensorId variable, HostRows rows,
                          const std::byte* data) {
  const Tensor& tensor = ir.tensor(variable);
  if (tensor.state.shard_over > 1) return declared_fact(ir, holder(ir, variable));
  PartitionTable& table = ir.partitions();
  const PartitionId given =
      rows == HostRows::kReplicas ? table.bottom() : tensor.state.grouping->partition(table);
  const std::size_t bytes = bytes_of(tensor.type);
  return groups.equal(given, [&](Replica r, Replica s) {
    const std::span<const std::uint32_t> row = table.labels(given);
    return row[r] == row[s] || same_bytes(data + row[r] * bytes, data + row[s] * bytes, bytes);
  });
}

Assumptions initial_assumptions(const Ir& ir) {
  Assumptions result;
  const RowGroups groups(ir);
  for (const StreamId id : ids<StreamId>(ir.num_streams())) {
    const Stream& stream = ir.stream(id);
    if (stream.to_device && stream.mode == StreamMode::kReplicate && is_small(stream)) {
      result.rows[id] = ir.partitions().top();
    }
  }
  for (const TensorId id : ir.graph(kMainGraph).tensors) {
    const Tensor& tensor = ir.tensor(id);
    if (tensor.kind != TensorKind::kVariable || tensor.state.shard_over > 1) continue;
    if (tensor.state.grouping->num_groups() == 1) continue;
    result.start[holder(ir, id)] =
        equal_rows_of(ir, groups, id, HostRows::kGroups, tensor.state.data->data());
  }
  return result;
}

}  // namespace popsr
