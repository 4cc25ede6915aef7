// Instruction for an op whose kernel sees all blocks at once: a collective or host input and output.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "popsr/base/threads/thread_pool.h"
#include "popsr/exec/collective_kernel.h"
#include "popsr/runtime/instructions/operands.h"
#include "popsr/runtime/plan/layout.h"
#include "popsr/runtime/ranks/block_exchange.h"
#include "popsr/runtime/ranks/rank_chain.h"

namespace popsr {

class Executor;
class PlanBuilder;
class ThreadPool;
struct Instruction;
struct LoweredOp;

struct CollectiveCall {
  CollectiveKernel kernel = {};
  BoundRun run = {};
  /// Temporary memory of outputs that may not overwrite their inputs directly.
  std::vector<Slab> staging = {};
  NoiseKeys noise = {};
  /// Chain of ranks that replaces `exchange` and the kernel; null if unused.
  std::unique_ptr<RankChain> chain = {};
  BlockExchange exchange = {};  ///< Messages before the kernel.
  /// Smallest replica of each replica's group; set inside conditionals.
  std::vector<Replica> leaders = {};
};

void build_collective_call(PlanBuilder& builder, const LoweredOp& op, Instruction& instruction);
void prepare(CollectiveCall& work, const Instruction& instruction, Executor& executor);
void execute(const CollectiveCall& work, const Instruction& instruction, Executor& executor);
void execute(const CollectiveCall& work, const Instruction& instruction, Executor& executor,
             ThreadPool& pool);
std::string describe(const CollectiveCall& work, const Instruction& instruction, const Ir& ir);

}  // namespace popsr
