// GraphEditor: state of variables in entries of remote buffers and in shards.
#include <fmt/format.h>

#include <algorithm>

#include "popsr/base/error.h"
#include "popsr/ir/edit/transaction.h"
#include "popsr/transform/graph_editor.h"

namespace popsr {
namespace {

/// ReplicaError unless the shards tile the variable's groups.
void check_shards(const Tensor& variable, std::int64_t shard_over) {
  const std::int64_t members = variable.state.grouping->group_size();
  if (shard_over >= 1 && members % shard_over == 0) return;
  raise<ReplicaError>(
      "replica_sharded_variable: shards do not tile the groups of '{}', got shard_over {} for groups of {}, "
      "expected a divisor",
      variable.name, shard_over, members);
}

}  // namespace

void GraphEditor::grow_remote_buffer(RemoteId id, std::int64_t entries) {
  const auto before = static_cast<std::int64_t>(ir_.remotes_[id].entries.size());
  Ir::check_entries(entries);
  if (entries < before) {
    raise<AttributeValueError>("remote_buffer: buffer {} cannot shrink, got {} entries, expected {} or more",
                               id.value + 1, entries, before);
  }
  Transaction transaction(ir_);
  ir_.append_entries(id, entries - before);
  transaction.commit();
}

void GraphEditor::set_meta_shape(RemoteId buffer, Shape meta_shape) {
  Transaction transaction(ir_);
  ir_.edit_remote(buffer).meta_shape = std::move(meta_shape);
  transaction.commit();
}

void GraphEditor::place_variable(TensorId variable, RemoteId id, std::int64_t entry,
                                 std::int64_t shard_over) {
  const RemoteBuffer& buffer = ir_.remotes_[id];
  const Tensor& tensor = ir_.tensors_[variable];
  if (entry < 0 || entry >= static_cast<std::int64_t>(buffer.entries.size())) {
    raise<OutOfRangeError>(
        "remote_variable: no such entry for '{}', got offset {}, expected 0 to {} of buffer {}", tensor.name,
        entry, buffer.entries.size() - 1, id.value + 1);
  }
  const TensorId home = buffer.entries[static_cast<std::size_t>(entry)];
  if (ir_.tensors_[home].state.resident != kNone) {
    raise<GraphError>(
        "remote_variable: entry is taken, got offset {} of buffer {} for '{}', which holds '{}', expected "
        "a free entry",
        entry, id.value + 1, tensor.name, ir_.tensors_[ir_.tensors_[home].state.resident].name);
  }
  move_home(variable, home, shard_over);
}

TensorId GraphEditor::add_shard(TensorId variable, std::int64_t shard_over, std::string_view name) {
  const Tensor& whole = ir_.tensors_[variable];
  const std::int64_t elements = num_elements(whole.type.shape);
  check_shards(whole, shard_over);
  const TensorType type{whole.type.dtype, {(elements + shard_over - 1) / shard_over}};
  Transaction transaction(ir_);
  const TensorId shard = ir_.add_tensor(kMainGraph, name, type, TensorKind::kShard);
  ir_.tensors_[shard].meta_shape = whole.type.shape;
  move_home(variable, shard, shard_over);
  transaction.commit();
  return shard;
}

void GraphEditor::move_home(TensorId variable, TensorId home, std::int64_t shard_over) {
  const Tensor& tensor = ir_.tensors_[variable];
  POPSR_CHECK(tensor.kind == TensorKind::kVariable && tensor.state.home == kNone);
  check_shards(tensor, shard_over);
  const std::int64_t elements = num_elements(tensor.type.shape);
  const Shape shape = shard_over == 1 ? tensor.type.shape : Shape{(elements + shard_over - 1) / shard_over};
  const TensorType& room = ir_.tensors_[home].type;
  const bool flat = room.shape == Shape{elements};  // a shard over one member is flat too
  if (room.dtype != tensor.type.dtype || (room.shape != shape && !(shard_over == 1 && flat))) {
    raise<ShapeError>("remote_variable: '{}' does not match its buffer, got {}, expected {}", tensor.name,
                      to_string(TensorType{tensor.type.dtype, shape}), to_string(room));
  }
  Transaction transaction(ir_);
  ir_.edit_tensor(variable).state.home = home;
  ir_.tensors_[variable].state.shard_over = shard_over;
  ir_.edit_tensor(home).state.resident = variable;
  ir_.changed();
  transaction.commit();
}

}  // namespace popsr
