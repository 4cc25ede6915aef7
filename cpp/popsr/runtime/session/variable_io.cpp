#include "popsr/runtime/session/variable_io.h"

#include <algorithm>
#include <cstring>

#include "popsr/runtime/check/claims.h"
#include "popsr/runtime/ranks/all_blocks.h"

namespace popsr {
namespace {

/// The row of each replica.
PartitionId row_partition(const Ir& ir, TensorId variable, HostRows rows) {
  PartitionTable& table = ir.partitions();
  return rows == HostRows::kReplicas ? table.bottom() : ir.tensor(variable).state.grouping->partition(table);
}

/// Layout of a row of one variable on the replicas: whole, or in parts on consecutive members of the group.
class RowParts {
 public:
  RowParts(const Ir& ir, const Plan& plan, TensorId variable)
      : grouping_(*ir.tensor(variable).state.grouping),
        shard_over_(ir.tensor(variable).state.shard_over),
        row_(bytes_of(ir.tensor(variable).type)),
        part_(bytes_of(plan.program().buffers[plan.variable(variable)].type)) {}

  std::size_t row_bytes() const { return row_; }
  std::size_t part_bytes() const { return part_; }

  /// Calls visit(member, begin, end): `member` holds bytes begin..end-1 of the row that `replica` sees.
  template <class Visit>
  void for_each_part(Replica replica, const Visit& visit) const {
    const std::span<const Replica> members = grouping_.members(replica);
    const std::int64_t first = grouping_.index_in_group(replica) / shard_over_ * shard_over_;
    for (std::int64_t i = 0; i < shard_over_; ++i) {
      const Replica member = shard_over_ == 1 ? replica : members[static_cast<std::size_t>(first + i)];
      visit(member, begin_of(i), std::min(begin_of(i) + part_, row_));
    }
  }

  /// First byte of the part that `replica` holds.
  std::size_t begin(Replica replica) const {
    return begin_of(grouping_.index_in_group(replica) % shard_over_);
  }

 private:
  std::size_t begin_of(std::int64_t index) const {
    return std::min(static_cast<std::size_t>(index) * part_, row_);
  }

  const ReplicaGrouping& grouping_;
  std::int64_t shard_over_;
  std::size_t row_, part_;
};

/// Elements of part `index` of a variable that are not padding.
std::int64_t visible_elements(std::int64_t part, std::int64_t index, const Tensor& variable) {
  return std::clamp<std::int64_t>(num_elements(variable.type.shape) - index * part, 0, part);
}

}  // namespace

std::size_t host_bytes(const Ir& ir, TensorId variable, HostRows rows) {
  const std::int64_t count = ir.partitions().num_blocks(row_partition(ir, variable, rows));
  return static_cast<std::size_t>(count) * bytes_of(ir.tensor(variable).type);
}

void read_rows(const Ir& ir, const Plan& plan, TensorId variable, HostRows rows, std::byte* out,
               RankLink* link) {
  const RowParts parts(ir, plan, variable);
  if (parts.row_bytes() == 0) return;
  const AllBlocks blocks(ir, plan, plan.variable(variable), link);
  for (const Replica replica : ir.partitions().representatives(row_partition(ir, variable, rows))) {
    parts.for_each_part(replica, [&](Replica member, std::size_t begin, std::size_t end) {
      if (begin < end) std::memcpy(out + begin, blocks.block(member), end - begin);
    });
    out += parts.row_bytes();
  }
}

std::vector<RowPiece> row_pieces(const Ir& ir, const Plan& plan, TensorId variable) {
  std::vector<RowPiece> pieces;
  const RowParts parts(ir, plan, variable);
  const BufferId buffer = plan.variable(variable);
  const PartitionId storage = plan.program().buffers[buffer].storage;
  const std::span<const std::uint32_t> labels = ir.partitions().labels(storage);
  const std::span<const Replica> first = ir.partitions().representatives(storage);
  const RankMap& ranks = plan.blocks().ranks();
  for (const Replica replica :
       ir.partitions().representatives(row_partition(ir, variable, HostRows::kGroups))) {
    parts.for_each_part(replica, [&](Replica member, std::size_t begin, std::size_t end) {
      if (begin >= end) return;
      const Replica lowest = first[labels[member]];
      const std::int64_t owner = ranks.owner(lowest);
      const std::byte* const data = owner == ranks.rank ? plan.block(buffer, lowest) : nullptr;
      pieces.push_back({owner, data, end - begin});
    });
  }
  return pieces;
}

void add_copies(const Ir& ir, const Plan& plan, TensorId variable, HostRows rows, const std::byte* data,
                std::vector<RowCopy>& copies) {
  const RowParts parts(ir, plan, variable);
  if (parts.row_bytes() == 0) return;
  const BufferId buffer = plan.variable(variable);
  if (plan.is_shared(buffer)) return;
  const PartitionId storage = plan.program().buffers[buffer].storage;
  const std::span<const std::uint32_t> row = ir.partitions().labels(row_partition(ir, variable, rows));
  for (const Replica replica : plan.blocks().representatives(storage)) {
    const std::size_t begin = parts.begin(replica);
    const std::size_t bytes = std::min(parts.part_bytes(), parts.row_bytes() - begin);
    copies.push_back({plan.block(buffer, replica), data + row[replica] * parts.row_bytes() + begin, bytes,
                      parts.part_bytes() - bytes});
  }
}

void run_copies(std::span<const RowCopy> copies) {
  for (const auto& [block, row, bytes, padding] : copies) {
    std::memcpy(block, row, bytes);
    std::memset(block + bytes, 0, padding);
  }
}

bool has_rows_stored(const Ir& ir, const Plan& plan, TensorId variable, HostRows rows,
                     const std::byte* data) {
  const RowParts parts(ir, plan, variable);
  if (parts.row_bytes() == 0) return true;
  const BufferId buffer = plan.variable(variable);
  const std::span<const std::uint32_t> row = ir.partitions().labels(row_partition(ir, variable, rows));
  const RankMap& ranks = plan.blocks().ranks();
  for (Replica replica = ranks.begin(); replica < ranks.end(); ++replica) {
    const std::size_t begin = parts.begin(replica);
    const std::size_t bytes = std::min(parts.part_bytes(), parts.row_bytes() - begin);
    const std::byte* given = data + row[replica] * parts.row_bytes() + begin;
    if (std::memcmp(plan.block(buffer, replica), given, bytes) != 0) return false;
  }
  return true;
}

void move_variables(const Plan& from, Plan& to) {
  const auto& buffers = to.program().buffers;
  for (const BufferId id : buffers.ids()) {
    if (buffers[id].kind != BufferKind::kVariable) break;  // the variables come first
    const BufferId old = from.variable(buffers[id].tensor);
    if (to.is_shared(id)) {
      if (from.is_shared(old)) continue;
      to.own(id);
    }
    for (const Replica replica : to.blocks().representatives(buffers[id].storage)) {
      const std::size_t bytes = to.memory().placements[id].nbytes;
      if (bytes > 0) std::memcpy(to.block(id, replica), from.block(old, replica), bytes);
    }
  }
}

std::optional<Divergence> find_divergence(const Ir& ir, const Plan& plan, TensorId variable, RankLink* link) {
  const BufferId buffer = plan.variable(variable);
  const PartitionId storage = plan.program().buffers[buffer].storage;
  const TensorType& type = plan.program().buffers[buffer].type;
  const Tensor& tensor = ir.tensor(variable);
  const ReplicaGrouping& grouping = *tensor.state.grouping;
  const auto index_of = [&](Replica r) { return grouping.index_in_group(r) % tensor.state.shard_over; };
  // The member that the host reads for that replica's part.
  const auto first_of = [&](Replica r) { return grouping.members(r)[static_cast<std::size_t>(index_of(r))]; };
  const std::span<const Replica> replicas = ir.partitions().representatives(storage);
  if (std::ranges::all_of(replicas, [&](Replica r) { return first_of(r) == r; })) return std::nullopt;
  const AllBlocks blocks(ir, plan, buffer, link);
  for (const Replica replica : replicas) {
    const Replica first = first_of(replica);
    if (first == replica) continue;
    const std::int64_t index = index_of(replica);
    const TensorType visible{type.dtype, {visible_elements(num_elements(type.shape), index, tensor)}};
    const auto element = first_difference(blocks.block(first), blocks.block(replica), visible);
    if (element) return Divergence{first, replica, index * num_elements(type.shape) + *element};
  }
  return std::nullopt;
}

}  // namespace popsr
