// The lowered program of a plan, which is the same on all ranks: buffers with their storage, but no
// addresses.
#pragma once

#include <optional>

#include "popsr/analysis/partition_analysis.h"
#include "popsr/exec/reduction_chain.h"
#include "popsr/replica/local_blocks.h"
#include "popsr/replica/rank_map.h"
#include "popsr/runtime/lowering/lowered_program.h"
#include "popsr/runtime/ranks/chain_tuning.h"

namespace popsr {

struct PlanOptions {
  /// True: one buffer block and one computation per block of the partition; false: per replica.
  bool dedup = true;
  bool share = true;  ///< True if reshaped values stay in their operand's memory.
  bool fuse = true;   ///< True to fuse products into their consumers, and copies into products.
  /// True to unroll loops in which products then fuse; errors inside them name no iteration.
  bool unroll = true;
  int threads = 1;            ///< Number of threads that the plan will run on, for temporaries.
  bool clamp_scales = false;  ///< Clamp scales of float8 ops, as in EvalSpec.
  bool check_floats = false;  ///< True if instructions get a FiniteCheck.
  RankMap ranks = {};
  ChainTuning chain = {};
};

/// Lowers and rewrites the program. Throws if it changed since its analysis.
LoweredProgram plan_program(const PartitionAnalysis& facts, const PlanOptions& options);

/// Execution partition, whose blocks an op computes one by one: the meet of its outputs' facts, and inside
/// conditionals of the replicas that run it together.
PartitionId execution_of(PartitionTable& table, const LoweredOp& op, bool dedup);

/// Chain kernel of the op, if all ranks reduce it in a chain with these options.
std::optional<ReductionChain> chain_for(const Ir& ir, const LocalBlocks& blocks,
                                        const LoweredProgram& program, const LoweredOp& op,
                                        const PlanOptions& options);

}  // namespace popsr
