// Instruction that accumulates products one after another into a target, which is read and written once.
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

/// Product of one accumulation step, for all blocks.
struct BoundStep {
  const Op* op = nullptr;
  const Op* product = nullptr;
  ProductFusion fusion = {};
};

/// Operands of one output block. Products are ordered by member of the group, then by step.
struct BoundSteps {
  std::vector<const void*> lhs = {}, rhs = {};
  std::vector<std::vector<const std::byte*>> in = {};  ///< Operands of the product's step, per product.
  std::vector<const void*> start = {};  ///< Address of the target before the first step, per member.
  std::byte* out = nullptr;
};

struct FusedAccumulation {
  double divisor = 1.0;  ///< Divisor of the reduction.
  /// True if the instruction's op is the last step; otherwise it reduces the target.
  bool ends_in_step = false;
  ProductKernel kernel = {};
  std::vector<BoundStep> steps = {};
  std::vector<BoundSteps> blocks = {};
  /// Factors of each product of the block being computed.
  std::vector<kernels::AccumulationFactors> factors = {};
};

void build_fused_accumulation(PlanBuilder& builder, const LoweredOp& op,
                              const lowered::FusedAccumulation& fused, Instruction& instruction);
inline void prepare(FusedAccumulation&, const Instruction&, Executor&) {}  // no noise, in no conditional
void execute(FusedAccumulation& work, const Instruction& instruction, Executor& executor);
std::string describe(const FusedAccumulation& work, const Instruction& instruction, const Ir& ir);

}  // namespace popsr
