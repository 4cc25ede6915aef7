// Blocks of a buffer, including blocks that only other ranks hold.
#pragma once

#include <cstddef>
#include <vector>

#include "popsr/runtime/plan/plan.h"
#include "popsr/runtime/ranks/block_exchange.h"
#include "popsr/runtime/ranks/rank_link.h"

namespace popsr {

/// Access to the blocks of all replicas, or of the replicas that each rank asks for; a rank's own blocks stay
/// in its plan. Construction is collective unless `link` is null: all ranks construct one at the same time.
class AllBlocks {
 public:
  AllBlocks(const Ir& ir, const Plan& plan, BufferId buffer, RankLink* link);
  /// Fetches the blocks of the replicas in `seen`, which is by rank.
  AllBlocks(const Ir& ir, const Plan& plan, BufferId buffer, RankLink* link,
            const std::vector<SeenReplicas>& seen);
  AllBlocks(const AllBlocks&) = delete;
  AllBlocks& operator=(const AllBlocks&) = delete;

  const std::byte* block(Replica replica) const {
    return blocks_.empty() ? plan_.block(buffer_, replica) : blocks_[replica];
  }

 private:
  void receive(const Ir& ir, RankLink& link, const std::vector<SeenReplicas>& seen);

  const Plan& plan_;
  BufferId buffer_;
  std::vector<std::byte> received_;
  std::vector<const std::byte*> blocks_;  ///< Address of each replica's block; empty without other ranks.
};

}  // namespace popsr
