// Blocks that an op reads and that only other ranks hold. They are received behind the local blocks of the
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

/// Flag per replica: nonzero if a rank needs to see the replica's value of an operand.
using SeenReplicas = std::vector<std::uint8_t>;

/// Replicas of other ranks whose operands `rank` reads for an op: members of the groups that exchange values,
/// replicas that share a row of a stream; on rank 0 all replicas of a print, on each rank all of a condition.
SeenReplicas seen_replicas(const Ir& ir, const LoweredOp& op, const RankMap& ranks, std::int64_t rank);

/// seen_replicas() of each rank.
std::vector<SeenReplicas> seen_by_rank(const Ir& ir, const LoweredOp& op, const RankMap& ranks);

/// Calls visit(from, to, replica) for each block that a rank needs from another: `from` is the lowest rank
/// with the block, `replica` the first of its replicas that is seen. Messages come by receiver, between all
/// pairs of ranks.
void for_each_message(const PartitionTable& table, PartitionId storage, const RankMap& ranks,
                      const std::vector<SeenReplicas>& seen,
                      const std::function<void(std::int64_t, std::int64_t, Replica)>& visit);

/// Numbers the blocks that each rank sends, in the order in which they are first sent.
class SentBlocks {
 public:
  SentBlocks(std::int64_t ranks, std::int64_t blocks)
      : counts_(static_cast<std::size_t>(ranks), 0),
        positions_(static_cast<std::size_t>(blocks), kAbsentBlock) {}

  /// Position of a block among the blocks that rank `from` sends; a block sent to several ranks is counted
  /// once.
  std::uint32_t position(std::int64_t from, std::uint32_t block) {
    std::uint32_t& position = positions_[block];
    if (position == kAbsentBlock) position = counts_[static_cast<std::size_t>(from)]++;
    return position;
  }
  /// Largest number of blocks that a rank sends.
  std::uint32_t max_sent() const { return std::ranges::max(counts_); }

 private:
  std::vector<std::uint32_t> counts_, positions_;
};

/// Placement of the blocks of one operand: local blocks, received blocks, and the messages between ranks.
struct Halo {
  struct Message {
    std::int64_t rank = 0;
    std::uint32_t block = 0;     ///< Number of the block in the operand's memory.
    std::uint32_t position = 0;  ///< Position among the blocks that the sender sends.
  };
  /// Block per replica: a local block, a received block behind them, or kAbsentBlock for replicas of other
  /// ranks that are not seen.
  std::vector<std::uint32_t> labels = {};
  std::vector<Message> outgoing = {}, incoming = {};
  std::int64_t num_received = 0;  ///< Blocks that this rank receives.
  std::int64_t max_received = 0;  ///< Largest num_received over all ranks.
  std::int64_t max_sent = 0;      ///< Largest number of distinct blocks that a rank sends.
  bool is_needed = false;         ///< True if some rank receives a block.
};

/// Computes the halo of an operand; `seen` is by rank.
Halo halo_of(const PartitionTable& table, const LocalBlocks& blocks, PartitionId storage,
             const std::vector<SeenReplicas>& seen);
/// Halo of the operands of `op` that are stored in this partition; empty without other ranks.
Halo halo_of(const Ir& ir, const LocalBlocks& blocks, const LoweredOp& op, PartitionId storage);

/// True if one of the groups has members on several ranks.
bool crosses_ranks(const ReplicaGrouping& groups, const RankMap& ranks);

/// Messages of one instruction, with addresses.
struct BlockExchange {
  /// Block that this rank receives or sends, `at` bytes behind the beginning of the sender's payload.
  struct Place {
    std::int64_t rank = 0;
    std::size_t at = 0;
    std::byte* data = nullptr;
    std::size_t size = 0;
  };
  std::vector<OutgoingBytes> outgoing = {};
  std::vector<IncomingBytes> incoming = {};
  /// Blocks to send and to receive when each rank gathers the payloads of all others instead.
  std::vector<Place> payload_out = {}, payload_in = {};
  std::size_t payload_bytes = 0;  ///< Payload bytes that each rank sends in that case.
  bool is_needed = false;         ///< True if some rank needs a block: then all ranks take part.
  Traffic moved = {};             ///< Messages that this rank has moved so far.

  /// Adds the messages of an operand: block b of `nbytes` bytes is at base + b * nbytes.
  void add(const Halo& halo, std::byte* base, std::size_t nbytes);

  /// True if the blocks fit into the payload of RankLink::agree(): write_payload() before it,
  /// read_payload() after it, and no further messages.
  bool is_gathered(const RankLink& link) const { return payload_bytes <= link.payload_capacity(); }
  void write_payload(RankLink& link) const;
  Traffic read_payload(const RankLink& link) const;
};

}  // namespace popsr
