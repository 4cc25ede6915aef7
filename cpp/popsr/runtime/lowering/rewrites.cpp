#include "popsr/runtime/lowering/rewrites.h"

#include <algorithm>
#include <optional>
#include <span>
#include <vector>

#include "popsr/effects/memory.h"
#include "popsr/effects/remote_access.h"
#include "popsr/exec/block_kernel.h"
#include "popsr/exec/product_kernel.h"
#include "popsr/ir/op_def.h"
#include "popsr/runtime/lowering/accesses.h"
#include "popsr/runtime/ranks/block_exchange.h"

namespace popsr {
namespace {

bool contains(const Operands& ids, BufferId id) { return std::ranges::find(ids, id) != ids.end(); }

/// The reader of the buffer when `op` is the next to touch it: the op, or its only part that does.
LoweredOp* reader_in(LoweredOp& op, BufferId buffer) {
  if (op.is<lowered::Plain>()) return &op;
  auto* const merged = op.as<lowered::Merged>();
  if (merged == nullptr) return nullptr;
  const auto touching = [buffer](const LoweredOp& part) { return touches(part, buffer); };
  if (std::ranges::count_if(merged->parts, touching) != 1) return nullptr;
  LoweredOp& reader = *std::ranges::find_if(merged->parts, touching);
  return reader.is<lowered::Plain>() ? &reader : nullptr;
}

class ProductFuser {
 public:
  ProductFuser(const Ir& ir, const kernels::KernelTable& kernels, LoweredProgram& program, bool dedup,
               const RankMap& ranks)
      : ir_(ir),
        kernels_(kernels),
        program_(program),
        dedup_(dedup),
        ranks_(ranks),
        slots_(program.buffers.size()) {}

  void fuse(std::vector<LoweredOp>& ops) {
    for (LoweredOp& op : ops) for_each_body(op, [this](std::vector<LoweredOp>& body) { fuse(body); });
    std::vector<std::size_t> products;
    for (std::size_t i = 0; i < ops.size(); ++i) {
      if (may_be_product(ops[i])) products.push_back(i);
    }
    if (products.empty()) return;
    if (counts_.empty()) counts_ = count_accesses(program_);
    const AccessPositions positions(ops, slots_);
    std::vector<bool> dead(ops.size(), false);
    for (const std::size_t i : products) {
      // One that took in another product is none any more.
      dead[i] = may_be_product(ops[i]) && fuse_into_consumer(ops, positions, i);
    }
    erase_dead(ops, dead);
  }

  static bool may_be_product(const LoweredOp& op) {
    return op.is<lowered::Plain>() && op.op->def->kernel.rows;
  }

 private:
  /// `positions` stay right: a consumer reads the operands of a product that nobody writes before it.
  bool fuse_into_consumer(std::vector<LoweredOp>& ops, const AccessPositions& positions,
                          std::size_t product) {
    const BufferId value = ops[product].out[0];
    const Operands operands = ops[product].in;
    const std::optional<std::size_t> next = positions.next_access(value, product);
    if (!next) return false;
    const bool are_kept = std::ranges::none_of(operands, [&](BufferId id) {
      const std::optional<std::size_t> write = positions.first_write(id, product + 1);
      return write && *write <= *next;
    });
    if (!are_kept) return false;
    LoweredOp* const reader = reader_in(ops[*next], value);
    if (reader == nullptr || !reader->op->def->kernel.fusion) return false;
    if (!ops[product].op->def->kernel.rows(eval_spec(ir_, program_, *ops[product].op, kernels_)))
      return false;
    LoweredOp& consumer = *reader;
    const std::optional<ProductFusion> fusion =
        consumer.op->def->kernel.fusion(eval_spec(ir_, program_, *consumer.op, kernels_));
    if (!fusion || consumer.in[fusion->product_input] != value || !reads_only(consumer, value)) return false;
    if (fusion->target && consumer.in[*fusion->target] != consumer.out[0]) return false;
    if (costs_more(ops[product], consumer, *fusion)) return false;
    if (!fusion->target && crosses_ranks(group_of(ir_, *fusion), ranks_)) return false;
    // Overwritten here, or written once and read once: nobody else can see the product.
    if (!contains(consumer.out, value) && (counts_[value].reads != 1 || counts_[value].writes != 1))
      return false;
    consumer.in[fusion->product_input] = kNone;
    consumer.form = lowered::FusedProduct{.fusion = *fusion,
                                          .product = ops[product].op,
                                          .seeds = ops[product].seeds,
                                          .path = ops[product].path,
                                          .lhs = operands[0],
                                          .rhs = operands[1]};
    return true;
  }

  /// True if fusion would compute more products than storing them does, or take apart rows of several blocks
  /// that are one product with a weight.
  bool costs_more(const LoweredOp& product, const LoweredOp& consumer, const ProductFusion& fusion) const {
    const auto blocks = [this](const LoweredOp& op) {
      return dedup_ ? ir_.partitions().num_blocks(op.facts[0]) : ir_.replication();
    };
    const std::int64_t group = fusion.group ? fusion.group->group_size() : ir_.replication();
    const auto is_activation = [this](BufferId id) {
      return program_.buffers[id].kind == BufferKind::kActivation;
    };
    if (fusion.target && blocks(consumer) > 1 && !is_activation(product.in[1]) &&
        is_activation(consumer.out[0]))
      return true;
    return blocks(consumer) * (fusion.target ? 1 : group) > blocks(product);
  }

  static bool reads_only(const LoweredOp& op, BufferId value) {
    return std::ranges::count(op.in, value) == 1;
  }

  const Ir& ir_;
  const kernels::KernelTable& kernels_;
  const LoweredProgram& program_;
  bool dedup_;
  const RankMap& ranks_;
  IdVector<BufferId, Accesses> counts_;  ///< Empty until there is a product.
  AccessSlots slots_;
};

}  // namespace

EvalSpec eval_spec(const Ir& ir, const LoweredProgram& program, const Op& op,
                   const kernels::KernelTable& kernels) {
  EvalSpec spec{.ir = ir,
                .op = op,
                .kernels = kernels,
                .inputs = {},
                .outputs = {},
                .stochastic = program.seed_rules.of(ir, op).has_value()};
  std::vector<TensorId> room;
  const std::span<const TensorId> inputs =
      op.def->memory.view ? view_of(ir, op.outputs[0])->bases : all_inputs(ir, op, room);
  spec.inputs.resize(inputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i] != kNone) spec.inputs[i] = ir.tensor(inputs[i]).type;
  }
  const std::span<const TensorId> outputs = all_outputs(ir, op, room);
  spec.outputs.reserve(outputs.size());
  for (const TensorId id : outputs) spec.outputs.push_back(ir.tensor(id).type);
  return spec;
}

ReplicaGrouping group_of(const Ir& ir, const ProductFusion& fusion) {
  return fusion.group.value_or(ReplicaGrouping::from_stride(ir.replication()));
}

void share_buffers(LoweredProgram& program) {
  const auto same_bytes = [](const LoweredOp& op) {
    return op.is<lowered::Plain>() && op.op->def->memory.same_bytes;
  };
  if (!any_op(program.ops, same_bytes)) return;
  const IdVector<BufferId, Accesses> counts = count_accesses(program);
  IdVector<BufferId, BufferId> now(program.buffers.size());
  for (const BufferId id : now.ids()) now[id] = id;
  const auto shareable = [&](const LoweredOp& op) {
    if (!same_bytes(op) || op.op->def->program.observable) return false;
    const BufferId from = now[op.in[0]];
    return program.buffers[from].kind == BufferKind::kActivation && counts[from].writes == 1 &&
           counts[op.out[0]].writes == 1;
  };
  const auto visit = [&](const auto& self, std::vector<LoweredOp>& ops) -> void {
    std::erase_if(ops, [&](LoweredOp& op) {
      for_each_body(op, [&](std::vector<LoweredOp>& body) { self(self, body); });
      if (!shareable(op)) return false;
      now[op.out[0]] = now[op.in[0]];
      return true;
    });
  };
  visit(visit, program.ops);
  replace_buffers(program.ops, now);
}

void fuse_products(const Ir& ir, const kernels::KernelTable& kernels, LoweredProgram& program, bool dedup,
                   const RankMap& ranks) {
  if (any_op(program.ops, ProductFuser::may_be_product))
    ProductFuser(ir, kernels, program, dedup, ranks).fuse(program.ops);
}

}  // namespace popsr
