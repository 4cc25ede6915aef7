// Products that are accumulated one after another into a target that is read and written once.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "popsr/exec/product_kernel.h"
#include "popsr/runtime/instructions/operands.h"
#include "popsr/runtime/lowering/lowered_program.h"

namespace popsr {

class Executor;
class PlanBuilder;
struct Instruction;

/// A product that is accumulated, in all blocks.
struct BoundStep {
  const Op* op = nullptr;
  const Op* product = nullptr;
  ProductFusion fusion = {};
};

/// One output block. Products stand member by member of its group, step by step.
struct BoundSteps {
  std::vector<const void*> lhs = {}, rhs = {};
  std::vector<std::vector<const std::byte*>> in = {};  ///< Per product: operands of its step.
  std::vector<const void*> start = {};                 ///< The target before, per member.
  std::byte* out = nullptr;
};

struct FusedAccumulation {
  double divisor = 1.0;       ///< Of the reduction.
  bool ends_in_step = false;  ///< The instruction's op is the last step; else it reduces the target.
  ProductKernel kernel = {};
  std::vector<BoundStep> steps = {};
  std::vector<BoundSteps> blocks = {};
  std::vector<kernels::AccumulationFactors> factors = {};  ///< Of each product of the block that is computed.
};

void build_fused_accumulation(PlanBuilder& builder, const LoweredOp& op,
                              const lowered::FusedAccumulation& fused, Instruction& instruction);
inline void prepare(FusedAccumulation&, const Instruction&, Executor&) {}  // no noise, in no conditional
void execute(FusedAccumulation& work, const Instruction& instruction, Executor& executor);
std::string describe(const FusedAccumulation& work, const Instruction& instruction, const Ir& ir);

}  // namespace popsr
