// An all-reduce of groups that cross ranks, for large values: each rank adds its members to the partial
// results of the rank before, chunk by chunk, and the results go back along the same ranks. Each link carries
// a value once in each direction, and no rank stores values of others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "popsr/exec/host_io.h"
#include "popsr/exec/reduction_chain.h"
#include "popsr/exec/transport.h"
#include "popsr/ir/ir.h"
#include "popsr/replica/local_blocks.h"
#include "popsr/runtime/instructions/operands.h"
#include "popsr/runtime/lowering/lowered_program.h"
#include "popsr/runtime/plan/layout.h"
#include "popsr/runtime/ranks/chain_tuning.h"

namespace popsr {

class ThreadPool;
namespace kernels {
struct KernelTable;
}

/// One group with members of this rank.
struct ChainGroup {
  Replica first = 0;                    ///< Its smallest replica, which decides whether it takes part.
  std::int64_t position = 0, last = 0;  ///< Of this rank, and of the last one, among the group's.
  std::int64_t before = 0, after = 0;   ///< Their neighbours' numbers.
  std::vector<const std::byte*> members = {};
  std::vector<std::byte*> out = {};  ///< Of blocks of this rank.
  std::size_t block = 0;             ///< Of the first of these: index of its noise key.
};

struct RankChain {
  ReductionChain kernel = {};
  std::vector<ChainGroup> groups = {};
  std::int64_t elements = 0, chunk = 0;
  std::size_t size = 0;           ///< Bytes of an element of the result.
  std::vector<Slab> states = {};  ///< Of two chunks, one after the other.

  /// On all ranks at once.
  void run(Transport& transport, ActiveReplicas active, const NoiseKeys& noise, ThreadPool& pool) const;
};

/// The kernel, when all ranks make a chain of the op, whose blocks are `exec`.
std::optional<ReductionChain> chain_of(const Ir& ir, const kernels::KernelTable& kernels,
                                       const LocalBlocks& blocks, const LoweredProgram& program,
                                       const LoweredOp& op, PartitionId exec, const ChainTuning& tuning);

}  // namespace popsr
