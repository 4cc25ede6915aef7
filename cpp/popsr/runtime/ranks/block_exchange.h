// Blocks that an op reads and that only other ranks hold: they are received behind the local blocks of the
// operand, each distinct block once, from the lowest rank that has it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "popsr/exec/transport.h"
#include "popsr/ir/ir.h"
#include "popsr/replica/local_blocks.h"
#include "popsr/runtime/lowering/lowered_program.h"
#include "popsr/runtime/ranks/rank_link.h"
#include "popsr/runtime/ranks/traffic.h"

namespace popsr {

/// By replica: not 0 where a rank needs to see the replica's value of an operand.
using SeenReplicas = std::vector<std::uint8_t>;

/// The replicas of which `rank` reads the operands of an op, beside its own: members of the groups that
/// exchange values, replicas that share a row of a stream; of a print all on rank 0; of a condition all.
SeenReplicas seen_replicas(const Ir& ir, const LoweredOp& op, const RankMap& ranks, std::int64_t rank);

/// The same of all ranks.
std::vector<SeenReplicas> seen_by_rank(const Ir& ir, const LoweredOp& op, const RankMap& ranks);

/// Calls visit(from, to, replica) for each block that a rank needs from another: the block's lowest rank, and
/// the first of its replicas that is seen. By receiver; between all ranks.
void for_each_message(const PartitionTable& table, PartitionId storage, const RankMap& ranks,
                      const std::vector<SeenReplicas>& seen,
                      const std::function<void(std::int64_t, std::int64_t, Replica)>& visit);

/// Numbers the blocks that each rank sends, in the order in which they are first sent.
class SentBlocks {
 public:
  SentBlocks(std::int64_t ranks, std::int64_t blocks)
      : counts_(static_cast<std::size_t>(ranks), 0),
        positions_(static_cast<std::size_t>(blocks), kAbsentBlock) {}

  /// Of a block that one rank sends, to however many others.
  std::uint32_t position(std::int64_t from, std::uint32_t block) {
    std::uint32_t& position = positions_[block];
    if (position == kAbsentBlock) position = counts_[static_cast<std::size_t>(from)]++;
    return position;
  }
  /// That some rank sends at most.
  std::uint32_t max_sent() const { return std::ranges::max(counts_); }

 private:
  std::vector<std::uint32_t> counts_, positions_;
};

/// The places of the blocks of one operand.
struct Halo {
  struct Message {
    std::int64_t rank = 0;
    std::uint32_t block = 0;     ///< Of the operand's memory.
    std::uint32_t position = 0;  ///< Among the blocks that the sender sends.
  };
  /// By replica: a local block, one behind them, or kAbsentBlock of other ranks' replicas that are not seen.
  std::vector<std::uint32_t> labels = {};
  std::vector<Message> outgoing = {}, incoming = {};
  std::int64_t num_received = 0;  ///< That are received.
  std::int64_t max_received = 0;  ///< That some rank receives.
  std::int64_t max_sent = 0;      ///< That some rank sends at most, each counted once.
  bool is_needed = false;         ///< By some rank.
};

/// `seen`: by rank.
Halo halo_of(const PartitionTable& table, const LocalBlocks& blocks, PartitionId storage,
             const std::vector<SeenReplicas>& seen);
/// The halo of the operands of `op` that are stored so; nothing without other ranks.
Halo halo_of(const Ir& ir, const LocalBlocks& blocks, const LoweredOp& op, PartitionId storage);

/// True if one of the groups has members on several ranks.
bool crosses_ranks(const ReplicaGrouping& groups, const RankMap& ranks);

/// Messages of one instruction, with addresses.
struct BlockExchange {
  /// A block that this rank receives, or gives: `at` bytes behind the begin of its sender's.
  struct Place {
    std::int64_t rank = 0;
    std::size_t at = 0;
    std::byte* data = nullptr;
    std::size_t size = 0;
  };
  std::vector<OutgoingBytes> outgoing = {};
  std::vector<IncomingBytes> incoming = {};
  std::vector<Place> payload_out = {},
                     payload_in = {};  ///< The same, when each rank gives all others what it has.
  std::size_t payload_bytes = 0;       ///< Bytes that each rank gives then.
  bool is_needed = false;              ///< Of some rank: then all of them take part.
  Traffic moved = {};                  ///< By this rank, so far.

  /// Adds the messages of an operand: block b of `nbytes` bytes is at base + b * nbytes.
  void add(const Halo& halo, std::byte* base, std::size_t nbytes);

  /// True when each rank gives what it has with its word that it makes the call: before and after agree().
  bool is_gathered(const RankLink& link) const { return payload_bytes <= link.payload_capacity(); }
  void write_payload(RankLink& link) const;
  Traffic read_payload(const RankLink& link) const;
};

}  // namespace popsr
