// Blocks of partitions that one rank stores and computes: the blocks that contain a replica of its own.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "popsr/replica/partition.h"
#include "popsr/replica/rank_map.h"

namespace popsr {

/// Label of a replica whose block this rank does not have.
inline constexpr std::uint32_t kAbsentBlock = kNone;

/// Numbering of a rank's blocks, from 0 in the order of the table; without other ranks it has all blocks.
/// Not thread safe, like the table.
class LocalBlocks {
 public:
  LocalBlocks(const PartitionTable& table, const RankMap& ranks) : table_(table), ranks_(ranks) {}

  const RankMap& ranks() const { return ranks_; }
  std::int64_t num_blocks(PartitionId id) const {
    return static_cast<std::int64_t>(representatives(id).size());
  }
  /// Smallest replica of this rank in each of its blocks, ascending.
  std::span<const Replica> representatives(PartitionId id) const {
    return ranks_.is_alone() ? table_.representatives(id) : entry(id).representatives;
  }
  /// Block of each replica; kAbsentBlock if this rank has no member of the block.
  std::span<const std::uint32_t> labels(PartitionId id) const {
    return ranks_.is_alone() ? table_.labels(id) : entry(id).labels;
  }

 private:
  struct Entry {
    std::vector<std::uint32_t> labels;
    std::vector<Replica> representatives;
  };
  const Entry& entry(PartitionId id) const;

  const PartitionTable& table_;
  RankMap ranks_;
  mutable std::unordered_map<PartitionId, Entry> entries_;
};

}  // namespace popsr
