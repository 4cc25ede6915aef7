// All-reduce of groups that cross ranks, for large values: each rank adds its members to the partial
// results of the rank before, chunk by chunk, and the results go back along the same ranks. Each link
// carries a value once in each direction, and no rank stores values of others.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "popsr/exec/host_io.h"
#include "popsr/exec/reduction_chain.h"
#include "popsr/ir/ir.h"
#include "popsr/replica/local_blocks.h"
#include "popsr/runtime/instructions/operands.h"
#include "popsr/runtime/lowering/lowered_program.h"
#include "popsr/runtime/plan/layout.h"
#include "popsr/runtime/ranks/chain_tuning.h"
#include "popsr/runtime/ranks/rank_link.h"
#include "popsr/runtime/ranks/traffic.h"

namespace popsr {

class ThreadPool;
namespace kernels {
struct KernelTable;
}

/// One group with members on this rank.
struct ChainGroup {
  /// Smallest replica of the group; its execution mask decides whether the group takes part.
  Replica first = 0;
  /// Positions of this rank and of the last rank among the group's ranks.
  std::int64_t position = 0, last = 0;
  std::int64_t before = 0, after = 0;  ///< Ranks before and after this one in the chain.
  std::vector<const std::byte*> members = {};
  std::vector<std::byte*> out = {};  ///< Output blocks of this rank.
  std::size_t block = 0;             ///< Index of the first output block; it selects the noise key.
};

/// Ranks that own members of a group, in the order in which the chain passes them.
std::vector<std::int64_t> chain_ranks(std::span<const Replica> members, const RankMap& ranks);

/// Schedule of a pass along a chain: in step t the rank at position k adds to chunk t - k, and results come
/// back in the same way, a step for each rank.
struct ChainSteps {
  std::int64_t elements = 0, chunk = 0;
  std::int64_t last = 0;  ///< Position of the last rank.

  std::int64_t chunks() const { return (elements + chunk - 1) / chunk; }
  std::int64_t steps() const { return chunks() + 2 * last; }
  std::int64_t begin(std::int64_t of) const { return of * chunk; }
  std::int64_t count(std::int64_t of) const { return std::min(chunk, elements - begin(of)); }
};

struct RankChain {
  ReductionChain kernel = {};
  std::vector<ChainGroup> groups = {};
  std::int64_t elements = 0, chunk = 0;
  std::size_t size = 0;           ///< Bytes of an element of the result.
  std::vector<Slab> states = {};  ///< Partial results of two chunks, used alternately.
  Traffic moved = {};             ///< Messages that this rank has moved so far.

  /// Runs the chain. Collective: all ranks call it at once.
  void run(RankLink& link, ActiveReplicas active, const NoiseKeys& noise, ThreadPool& pool);
};

/// Chain kernel of the op, whose blocks are `exec`; nullopt unless all ranks reduce it in a chain.
std::optional<ReductionChain> chain_of(const Ir& ir, const kernels::KernelTable& kernels,
                                       const LocalBlocks& blocks, const LoweredProgram& program,
                                       const LoweredOp& op, PartitionId exec, const ChainTuning& tuning);

}  // namespace popsr
