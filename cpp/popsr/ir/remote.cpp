// Ir: state that is not a plain variable. Entries of remote buffers, and shards.
#include <fmt/format.h>

#include <algorithm>

#include "popsr/base/error.h"
#include "popsr/ir/ir.h"
#include "popsr/ir/transaction.h"

namespace popsr {
namespace {

void check_entries(std::int64_t entries) {
  if (entries >= 1 && entries < std::int64_t{1} << 31) return;
  raise<AttributeValueError>(
      "remote_buffer: Entries must be a non-zero, positive integer, got {}, expected 1 to 2**31 - 1",
      entries);
}

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

RemoteId Ir::add_remote_buffer(TensorType type, std::int64_t entries, Shape meta_shape) {
  check_size("remote_buffer", type);
  check_entries(entries);
  Transaction transaction(*this);
  const auto id = RemoteId(remotes_.size());
  remotes_.push_back(
      RemoteBuffer{.id = id, .type = std::move(type), .meta_shape = std::move(meta_shape), .entries = {}});
  grow_remote_buffer(id, entries);
  transaction.commit();
  return id;
}

void Ir::grow_remote_buffer(RemoteId id, std::int64_t entries) {
  const auto before = static_cast<std::int64_t>(remotes_[id].entries.size());
  check_entries(entries);
  if (entries < before) {
    raise<AttributeValueError>("remote_buffer: buffer {} cannot shrink, got {} entries, expected {} or more",
                               id.value + 1, entries, before);
  }
  Transaction transaction(*this);
  RemoteBuffer& buffer = edit_remote(id);
  for (std::int64_t e = before; e < entries; ++e) {
    buffer.entries.push_back(add_tensor(kMainGraph, fmt::format("remote_buffer_{}/{}", id.value + 1, e),
                                        buffer.type, TensorKind::kRemote));
  }
  transaction.commit();
}

void Ir::set_meta_shape(RemoteId buffer, Shape meta_shape) {
  Transaction transaction(*this);
  edit_remote(buffer).meta_shape = std::move(meta_shape);
  transaction.commit();
}

void Ir::place_variable(TensorId variable, RemoteId id, std::int64_t entry, std::int64_t shard_over) {
  const RemoteBuffer& buffer = remotes_[id];
  const Tensor& tensor = tensors_[variable];
  if (entry < 0 || entry >= static_cast<std::int64_t>(buffer.entries.size())) {
    raise<OutOfRangeError>(
        "remote_variable: no such entry for '{}', got offset {}, expected 0 to {} of buffer {}", tensor.name,
        entry, buffer.entries.size() - 1, id.value + 1);
  }
  const TensorId home = buffer.entries[static_cast<std::size_t>(entry)];
  if (tensors_[home].state.resident != kNone) {
    raise<GraphError>(
        "remote_variable: entry is taken, got offset {} of buffer {} for '{}', which holds '{}'", entry,
        id.value + 1, tensor.name, tensors_[tensors_[home].state.resident].name);
  }
  settle(variable, home, shard_over);
}

TensorId Ir::add_shard(TensorId variable, std::int64_t shard_over, std::string_view name) {
  const Tensor& whole = tensors_[variable];
  const std::int64_t elements = num_elements(whole.type.shape);
  check_shards(whole, shard_over);
  const TensorType type{whole.type.dtype, {(elements + shard_over - 1) / shard_over}};
  Transaction transaction(*this);
  const TensorId shard = add_tensor(kMainGraph, name, type, TensorKind::kShard);
  tensors_[shard].meta_shape = whole.type.shape;
  settle(variable, shard, shard_over);
  transaction.commit();
  return shard;
}

void Ir::settle(TensorId variable, TensorId home, std::int64_t shard_over) {
  const Tensor& tensor = tensors_[variable];
  POPSR_CHECK(tensor.kind == TensorKind::kVariable && tensor.state.home == kNone);
  check_shards(tensor, shard_over);
  const std::int64_t elements = num_elements(tensor.type.shape);
  const Shape shape = shard_over == 1 ? tensor.type.shape : Shape{(elements + shard_over - 1) / shard_over};
  const TensorType& room = tensors_[home].type;
  const bool flat = room.shape == Shape{elements};  // a shard over one member is flat too
  if (room.dtype != tensor.type.dtype || (room.shape != shape && !(shard_over == 1 && flat))) {
    raise<ShapeError>("remote_variable: '{}' does not match its buffer, got {}, expected {}", tensor.name,
                      to_string(TensorType{tensor.type.dtype, shape}), to_string(room));
  }
  Transaction transaction(*this);
  edit_tensor(variable).state.home = home;
  tensors_[variable].state.shard_over = shard_over;
  edit_tensor(home).state.resident = variable;
  changed();
  transaction.commit();
}

}  // namespace popsr
