#include "fuzz/sabotage.h"

#include <cstring>

#include "popsr/base/threads/thread_pool.h"
#include "popsr/exec/block_kernel.h"
#include "popsr/ops/registry.h"

namespace popsr::test {
namespace {

/// The real effect of the op.
BlockKernel right_kernel(const EvalSpec& spec) {
  return default_registry()->at(spec.op.def->name).kernel.eval(spec);
}

std::ptrdiff_t output_bytes(const EvalSpec& spec) {
  return static_cast<std::ptrdiff_t>(bytes_of(spec.outputs[0]));
}

/// All blocks are the first one.
BlockKernel copies_of_one_block(const EvalSpec& spec) {
  return [right = right_kernel(spec), bytes = output_bytes(spec)](const BlockRun& run) {
    right(run);
    for (std::int64_t b = 1; b < run.blocks; ++b) {
      std::memcpy(run.out[0] + b * run.out_stride[0], run.out[0], static_cast<std::size_t>(bytes));
    }
  };
}

/// Several threads forget the last byte.
BlockKernel depends_on_threads(const EvalSpec& spec) {
  return [right = right_kernel(spec), bytes = output_bytes(spec)](const BlockRun& run) {
    right(run);
    if (run.pool.threads() > 1 && bytes > 0) run.out[0][bytes - 1] = std::byte{0};
  };
}

template <EvalFn eval>
void compute(OpDef& def) {
  def.kernel.eval = eval;
}

/// The members of the collective are not declared, so values that it overwrites are not staged.
void without_peers(OpDef& def) { def.replicas.peers = Peers::kNone; }
void without_influence(OpDef& def) { def.inputs[1].influences = false; }
template <PartitionFn rule>
void claim(OpDef& def) {
  def.replicas.partition = rule;
}
PartitionId partition_of_first_input(const RuleContext& context, std::size_t) { return context.inputs[0]; }

void swap_functions(kernels::KernelTable& table) {
  const auto kernels_of = [&](kernels::ElementwiseOp op) -> auto& {
    return table.elementwise_kernels[static_cast<std::size_t>(op)];
  };
  kernels_of(kernels::ElementwiseOp::kTanh) = kernels_of(kernels::ElementwiseOp::kSin);
}

constexpr Sabotage kSabotages[] = {
    {"blocks are copies of one", "mul", compute<copies_of_one_block>},
    {"threads forget a byte", "add", compute<depends_on_threads>},
    {"members overwrite each other", "replicated_all_reduce_", without_peers},
    {"an operand is not looked at", "accumulate_", without_influence},
    {"a sum is what it was", "replicated_all_reduce", claim<partition_of_first_input>},
    {"parts are equal everywhere", "replicated_reduce_scatter", claim<equal_everywhere>},
    {"all replicas load the same", "host_load", claim<equal_everywhere>},
    {"a result has the partition of one operand", "add", claim<partition_of_first_input>},
    {"a mask is random without its seed", "dropout", claim<partition_of_first_input>},
    {"a level has another function", "tanh", nullptr, swap_functions},
};

}  // namespace

std::span<const Sabotage> sabotages() { return kSabotages; }

std::shared_ptr<const Registry> sabotaged(const Sabotage& sabotage) {
  auto registry = std::make_shared<Registry>(*default_registry());
  OpDef def = registry->at(sabotage.op);
  if (sabotage.change != nullptr) sabotage.change(def);
  registry->replace(std::move(def));
  return registry;
}

}  // namespace popsr::test
