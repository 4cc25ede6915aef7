// Instruction for a product that its only consumer uses without storing it: an accumulation into a target,
// or a reduction over a group.
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
  ProductKernel kernel = {};  ///< Kernel that computes in registers; if empty, `tiles` is used.
  /// Tile-wise computation; then `noise` holds keys of the consumer.
  std::unique_ptr<TileFusion> tiles = {};
  std::vector<BoundProduct> blocks = {};
  NoiseKeys noise = {};
  /// Smallest replica of each replica's group; set inside conditionals.
  std::vector<Replica> leaders = {};
};

void build_fused_product(PlanBuilder& builder, const LoweredOp& op, const lowered::FusedProduct& fused,
                         Instruction& instruction);
void prepare(FusedProduct& work, const Instruction& instruction, Executor& executor);
void execute(const FusedProduct& work, const Instruction& instruction, Executor& executor);
std::string describe(const FusedProduct& work, const Instruction& instruction, const Ir& ir);

}  // namespace popsr
