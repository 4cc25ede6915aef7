// An op whose kernel computes runs of blocks.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "popsr/exec/block_kernel.h"
#include "popsr/runtime/instructions/operands.h"
#include "popsr/runtime/plan/layout.h"

namespace popsr {

class Executor;
class PlanBuilder;
struct Instruction;
struct LoweredOp;

struct KernelRun {
  BlockKernel kernel = {};
  std::vector<BoundRun> runs = {};
  std::vector<Slab> staging = {};  ///< Of outputs that other blocks of the op still read as inputs.
  NoiseKeys noise = {};
  std::unique_ptr<BoundRun> part = {};  ///< In conditionals: operands of the part of a run that is active.
  bool write_back = false;              ///< From the view that the op made to the tensors that it views.
};

void build_kernel_run(PlanBuilder& builder, const LoweredOp& op, Instruction& instruction);
void prepare(KernelRun& work, const Instruction& instruction, Executor& executor);
void execute(KernelRun& work, const Instruction& instruction, Executor& executor);
std::string describe(const KernelRun& work, const Instruction& instruction, const Ir& ir);

}  // namespace popsr
