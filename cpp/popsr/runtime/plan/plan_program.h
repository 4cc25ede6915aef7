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
  bool dedup = true;          ///< One buffer and one computation per block; false: per replica.
  bool share = true;          ///< Reshaped values stay in their operand's memory.
  bool fuse = true;           ///< Fuse products into their consumers, and copies into products.
  bool unroll = true;         ///< Write out loops where products then fuse: errors name no iteration.
  int threads = 1;            ///< Threads that the plan will run on, for temporaries.
  bool clamp_scales = false;  ///< As in EvalSpec.
  bool check_floats = false;  ///< Instructions get a FiniteCheck.
  RankMap ranks = {};
  ChainTuning chain = {};
};

/// Throws when the program has changed since its analysis.
LoweredProgram plan_program(const PartitionAnalysis& facts, const PlanOptions& options);

/// The partition whose blocks an op computes one by one: the meet of its outputs' facts, inside conditionals
/// also with the replicas that run it together.
PartitionId execution_of(PartitionTable& table, const LoweredOp& op, bool dedup);

/// The kernel, when all ranks make a chain of the op with these options.
std::optional<ReductionChain> chain_for(const Ir& ir, const LocalBlocks& blocks,
                                        const LoweredProgram& program, const LoweredOp& op,
                                        const PlanOptions& options);

}  // namespace popsr
