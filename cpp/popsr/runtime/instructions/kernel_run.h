// Instruction for an op whose kernel computes runs of blocks.
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
  /// Temporary memory of outputs that other blocks of the op still read as inputs.
  std::vector<Slab> staging = {};
  NoiseKeys noise = {};
  std::unique_ptr<BoundRun> part = {};  ///< Operands of the active part of a run; set inside conditionals.
  /// True if the kernel copies from the view that the op made back to the tensors viewed.
  bool write_back = false;
};

void build_kernel_run(PlanBuilder& builder, const LoweredOp& op, Instruction& instruction);
void prepare(KernelRun& work, const Instruction& instruction, Executor& executor);
void execute(KernelRun& work, const Instruction& instruction, Executor& executor);
std::string describe(const KernelRun& work, const Instruction& instruction, const Ir& ir);

}  // namespace popsr
