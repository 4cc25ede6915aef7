// Copies of whole blocks: assignments between buffers, and copies that follow other instructions.
#pragma once

#include <string>
#include <vector>

#include "popsr/base/threads/thread_pool.h"
#include "popsr/exec/host_io.h"
#include "popsr/runtime/instructions/operands.h"

namespace popsr {

class Ir;
class ThreadPool;
class Executor;
class PlanBuilder;
struct Instruction;
struct LoweredOp;

struct CopyBlocks {
  std::vector<BlockCopy> copies = {};
};

void copy_blocks(const std::vector<BlockCopy>& copies, ActiveReplicas active, ThreadPool& pool);

void build_copy_blocks(PlanBuilder& builder, const LoweredOp& op, Instruction& instruction);
inline void prepare(CopyBlocks&, const Instruction&, Executor&) {}
void execute(const CopyBlocks& work, const Instruction& instruction, Executor& executor);
std::string describe(const CopyBlocks& work, const Instruction& instruction, const Ir& ir);

}  // namespace popsr
