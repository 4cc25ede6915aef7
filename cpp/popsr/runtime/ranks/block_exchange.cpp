#include "popsr/runtime/ranks/block_exchange.h"

#include <algorithm>
#include <cstring>

#include "popsr/ir/op_def.h"

namespace popsr {
namespace {

/// Adds the members of groups that the rank sees: of groups in which it has a member.
void see_groups(const ReplicaGrouping& groups, const RankMap& ranks, std::int64_t rank, SeenReplicas& seen) {
  for (Replica r = ranks.begin(rank); r < ranks.end(rank); ++r) {
    for (const Replica member : groups.members(r)) seen[member] = 1;
  }
}

/// The stream that the op moves; null when it moves none.
const Stream* stream_of(const Ir& ir, const Op& op) {
  for (const Attribute& value : op.attrs) {
    if (const auto* id = std::get_if<StreamId>(&value)) return &ir.stream(*id);
  }
  return nullptr;
}

void see_rows(const Stream& stream, const RankMap& ranks, std::int64_t rank, SeenReplicas& seen) {
  std::vector<std::uint8_t> rows(static_cast<std::size_t>(num_rows(stream, ranks.replicas)), 0);
  for (Replica r = ranks.begin(rank); r < ranks.end(rank); ++r) rows[row_of(stream, r)] = 1;
  for (Replica r = 0; r < seen.size(); ++r) seen[r] = std::max(seen[r], rows[row_of(stream, r)]);
}

}  // namespace

SeenReplicas seen_replicas(const Ir& ir, const LoweredOp& op, const RankMap& ranks, std::int64_t rank) {
  const auto replicas = static_cast<std::size_t>(ranks.replicas);
  if (op.is<lowered::Conditional>() || op.is<lowered::Loop>()) return SeenReplicas(replicas, 1);
  SeenReplicas seen(replicas, 0);
  if (!op.is<lowered::Plain>() || op.op->def->kernel.collective == nullptr) return seen;
  if (const std::optional<ReplicaGrouping> groups = collective_groups(ir, *op.op)) {
    see_groups(*groups, ranks, rank, seen);
  } else if (const Stream* const stream = stream_of(ir, *op.op)) {
    see_rows(*stream, ranks, rank, seen);
  } else if (op.op->def->program.observable && rank == 0) {
    return SeenReplicas(replicas, 1);
  }
  return seen;
}

void for_each_message(const PartitionTable& table, PartitionId storage, const RankMap& ranks,
                      const std::vector<SeenReplicas>& seen,
                      const std::function<void(std::int64_t, std::int64_t, Replica)>& visit) {
  const std::span<const std::uint32_t> labels = table.labels(storage);
  const std::span<const Replica> first = table.representatives(storage);
  for (std::int64_t to = 0; to < ranks.ranks; ++to) {
    std::vector<std::uint8_t> has(first.size(), 0);
    for (Replica r = ranks.begin(to); r < ranks.end(to); ++r) has[labels[r]] = 1;
    const SeenReplicas& sees = seen[static_cast<std::size_t>(to)];
    for (Replica r = 0; r < labels.size(); ++r) {
      const std::uint32_t block = labels[r];
      if (sees[r] == 0 || has[block] != 0) continue;
      has[block] = 1;
      visit(ranks.owner(first[block]), to, r);
    }
  }
}

Halo halo_of(const PartitionTable& table, const LocalBlocks& blocks, PartitionId storage,
             const std::vector<SeenReplicas>& seen) {
  const RankMap& ranks = blocks.ranks();
  const std::span<const std::uint32_t> labels = table.labels(storage), local = blocks.labels(storage);
  Halo halo;
  std::vector<std::uint32_t> received(static_cast<std::size_t>(table.num_blocks(storage)), kAbsentBlock);
  std::vector<std::int64_t> counts(static_cast<std::size_t>(ranks.ranks), 0);
  SentBlocks sent(ranks.ranks, table.num_blocks(storage));
  for_each_message(table, storage, ranks, seen, [&](std::int64_t from, std::int64_t to, Replica r) {
    halo.is_needed = true;
    halo.max_received = std::max(halo.max_received, ++counts[static_cast<std::size_t>(to)]);
    const std::uint32_t position = sent.position(from, labels[r]);
    if (from == ranks.rank) halo.outgoing.push_back({to, local[r], position});
    if (to != ranks.rank) return;
    received[labels[r]] = static_cast<std::uint32_t>(blocks.num_blocks(storage) + halo.num_received++);
    halo.incoming.push_back({from, received[labels[r]], position});
  });
  halo.max_sent = sent.max_sent();
  const SeenReplicas& here = seen[static_cast<std::size_t>(ranks.rank)];
  for (Replica r = 0; r < labels.size(); ++r) {
    const std::uint32_t block = local[r] != kAbsentBlock ? local[r] : received[labels[r]];
    halo.labels.push_back(ranks.owns(r) || here[r] != 0 ? block : kAbsentBlock);
  }
  return halo;
}

std::vector<SeenReplicas> seen_by_rank(const Ir& ir, const LoweredOp& op, const RankMap& ranks) {
  std::vector<SeenReplicas> seen;
  for (std::int64_t rank = 0; rank < ranks.ranks; ++rank) seen.push_back(seen_replicas(ir, op, ranks, rank));
  return seen;
}

Halo halo_of(const Ir& ir, const LocalBlocks& blocks, const LoweredOp& op, PartitionId storage) {
  if (blocks.ranks().is_alone()) {
    const std::span<const std::uint32_t> labels = blocks.labels(storage);
    return {.labels = {labels.begin(), labels.end()}};
  }
  return halo_of(ir.partitions(), blocks, storage, seen_by_rank(ir, op, blocks.ranks()));
}

bool crosses_ranks(const ReplicaGrouping& groups, const RankMap& ranks) {
  for (std::int64_t g = 0; g < groups.num_groups() && !ranks.is_alone(); ++g) {
    const std::span<const Replica> members = groups.group(g);
    if (ranks.owner(members.front()) != ranks.owner(members.back())) return true;
  }
  return false;
}

void BlockExchange::add(const Halo& halo, std::byte* base, std::size_t nbytes) {
  is_needed = is_needed || halo.is_needed;
  if (nbytes == 0) return;
  for (const Halo::Message& each : halo.outgoing) {
    std::byte* const data = base + each.block * nbytes;
    outgoing.push_back({each.rank, data, nbytes});
    payload_out.push_back({each.rank, payload_bytes + each.position * nbytes, data, nbytes});
  }
  for (const Halo::Message& each : halo.incoming) {
    std::byte* const data = base + each.block * nbytes;
    incoming.push_back({each.rank, data, nbytes});
    payload_in.push_back({each.rank, payload_bytes + each.position * nbytes, data, nbytes});
  }
  payload_bytes += static_cast<std::size_t>(halo.max_sent) * nbytes;
}

void BlockExchange::write_payload(RankLink& link) const {
  for (const Place& each : payload_out) std::memcpy(link.payload().data() + each.at, each.data, each.size);
}

Traffic BlockExchange::read_payload(const RankLink& link) const {
  for (const Place& each : payload_in)
    std::memcpy(each.data, link.payload_of(each.rank).data() + each.at, each.size);
  return gathered_traffic(payload_bytes, link.ranks());
}

}  // namespace popsr
