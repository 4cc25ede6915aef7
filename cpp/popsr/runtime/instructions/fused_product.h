// A product that its only consumer takes without it being stored: an accumulation into a target, or a
// reduction over a group.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "popsr/exec/product_kernel.h"
#include "popsr/runtime/instructions/operands.h"
#include "popsr/runtime/instructions/tile_fusion.h"
#include "popsr/runtime/lowering/lowered_program.h"

namespace popsr {

class Executor;
class PlanBuilder;
struct Instruction;

struct FusedProduct {
  ProductFusion fusion = {};
  const Op* product = nullptr;
  PathId product_path = {};
  ProductKernel kernel = {};               ///< In registers; without it `tiles`.
  std::unique_ptr<TileFusion> tiles = {};  ///< With noise: `noise` is of the consumer.
  std::vector<BoundProduct> blocks = {};
  NoiseKeys noise = {};
  std::vector<Replica> leaders = {};  ///< In conditionals: smallest replica of each replica's group.
};

void build_fused_product(PlanBuilder& builder, const LoweredOp& op, const lowered::FusedProduct& fused,
                         Instruction& instruction);
void prepare(FusedProduct& work, const Instruction& instruction, Executor& executor);
void execute(const FusedProduct& work, const Instruction& instruction, Executor& executor);
std::string describe(const FusedProduct& work, const Instruction& instruction, const Ir& ir);

}  // namespace popsr
