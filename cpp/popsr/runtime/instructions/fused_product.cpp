#include "popsr/runtime/instructions/fused_product.h"

#include <fmt/format.h>

#include "popsr/exec/host_io.h"
#include "popsr/exec/product_kernel.h"
#include "popsr/ir/op_def.h"
#include "popsr/runtime/execution/executor.h"
#include "popsr/runtime/plan/plan_builder.h"

namespace popsr {
namespace {

/// The output block of `replica`; `members`: replicas whose products it takes.
BoundProduct bind_block(const PlanBuilder& builder, const LoweredOp& op, const lowered::FusedProduct& fused,
                        Replica replica, std::span<const Replica> members, bool noisy) {
  PartitionTable& table = builder.table();
  BoundProduct bound;
  for (const Replica member : members) {
    bound.lhs.push_back(builder.block(fused.lhs, member));
    bound.rhs.push_back(builder.block(fused.rhs, member));
    if (!noisy) continue;
    bound.seed_replicas.push_back(table.representatives(fused.seeds)[table.labels(fused.seeds)[member]]);
  }
  bound.noise.resize(bound.seed_replicas.size());
  for (const BufferId id : op.in) bound.in.push_back(id == kNone ? nullptr : builder.block(id, replica));
  bound.out = builder.block(op.out[0], replica);
  bound.replica = replica;
  return bound;
}

}  // namespace

void build_fused_product(PlanBuilder& builder, const LoweredOp& op, const lowered::FusedProduct& fused,
                         Instruction& instruction) {
  const PartitionId exec = builder.execution(op);
  FusedProduct& work = instruction.work.emplace<FusedProduct>();
  work.product = fused.product;
  work.fusion = fused.fusion;
  work.product_path = fused.path;
  if (fused.fusion.in_registers && fused.product->def->kernel.product) {
    work.kernel = fused.product->def->kernel.product(builder.spec(*fused.product));
  }
  if (!work.kernel) {
    work.tiles = std::make_unique<TileFusion>(builder, op, fused);
    work.noise = builder.noise_keys(op);
  }
  instruction.blocks = builder.blocks().num_blocks(exec);
  if (op.exec) work.leaders = builder.leaders(*op.op);
  const bool noisy = builder.is_stochastic(*fused.product) && work.tiles;
  if (noisy) builder.note_noise();
  const ReplicaGrouping group = group_of(builder.ir(), fused.fusion);
  for (const Replica& replica : builder.blocks().representatives(exec)) {
    const auto members = fused.fusion.target ? std::span(&replica, 1) : group.members(replica);
    work.blocks.push_back(bind_block(builder, op, fused, replica, members, noisy));
  }
  builder.fill_storage(op, op.out[0], exec, instruction.copies);
}

void prepare(FusedProduct& work, const Instruction& instruction, Executor& executor) {
  executor.check_groups(instruction, work.leaders);
  executor.derive_keys(instruction, work.noise);
  for (BoundProduct& bound : work.blocks) {
    if (bound.noise.empty()) continue;
    executor.derive_keys(executor.output_key(work.product_path, *work.product, 0), bound.seed_replicas,
                         bound.noise);
  }
}

void execute(const FusedProduct& work, const Instruction&, Executor& executor) {
  const ProductFusion& fusion = work.fusion;
  const ActiveReplicas active = executor.active();
  for (std::size_t b = 0; b < work.blocks.size(); ++b) {
    const BoundProduct& bound = work.blocks[b];
    if (!active(bound.replica)) continue;
    if (work.tiles) {
      const kernels::NoiseKey* key = work.noise.keys.empty() ? nullptr : &work.noise.keys[0][b];
      work.tiles->run(bound, key, executor.io(), executor.pool());
      continue;
    }
    const kernels::AccumulationFactors factors =
        fusion.factors ? fusion.factors(bound.in.data()) : kernels::AccumulationFactors{};
    work.kernel({.lhs = bound.lhs.data(),
                 .rhs = bound.rhs.data(),
                 .terms = static_cast<std::int64_t>(bound.lhs.size()),
                 .out = bound.out,
                 .factors = fusion.target ? &factors : nullptr,
                 .divisor = fusion.divisor,
                 .pool = executor.pool()});
  }
}

std::string describe(const FusedProduct& work, const Instruction& instruction, const Ir&) {
  if (instruction.op == work.product) return std::string(work.product->def->name);
  return fmt::format("{}+{}", work.product->def->name, instruction.op->def->name);
}

}  // namespace popsr
