// Gradient accumulation without passes over the accumulators: products wait until their target is read.
#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "popsr/exec/product_kernel.h"
#include "popsr/ir/op_def.h"
#include "popsr/runtime/lowering/accesses.h"
#include "popsr/runtime/lowering/rewrites.h"
#include "popsr/runtime/ranks/block_exchange.h"

namespace popsr {
namespace {

/// One list of ops.
class AccumulationFuser {
 public:
  AccumulationFuser(const Ir& ir, const kernels::KernelTable& kernels, LoweredProgram& program,
                    const IdVector<BufferId, Accesses>& counts, AccessSlots& slots, bool dedup,
                    const RankMap& ranks, std::vector<LoweredOp>& ops)
      : ir_(ir),
        kernels_(kernels),
        program_(program),
        counts_(counts),
        slots_(slots),
        dedup_(dedup),
        ranks_(ranks),
        ops_(ops),
        dead_(ops.size(), false) {}

  void run() {
    if (std::ranges::none_of(ops_, [this](const LoweredOp& op) { return is_step(op); })) return;
    positions_.emplace(ops_, slots_);
    for (std::size_t i = 0; i < ops_.size(); ++i) {
      if (reduces(i)) {
        close_touched(i, ops_[i].in[0]);
        finish(ops_[i].in[0], i);
      } else {
        const bool accumulates = is_step(ops_[i]);
        const bool extends = accumulates && continues(ops_[i]);
        close_touched(i, extends ? ops_[i].out[0] : kNone);
        if (accumulates || overwrites(ops_[i])) add(i);
      }
    }
    while (!chains_.empty()) close(chains_.begin()->first);
    apply();
  }

 private:
  /// Positions of the instructions that accumulate into one target, with nothing between that touches it or
  /// writes the operands of the products.
  struct Chain {
    std::vector<std::size_t> at;
    std::size_t bytes = 0;  ///< Bytes of the products' operands, which live until the last.
  };

  static const lowered::FusedProduct& product_of(const LoweredOp& op) {
    return *op.as<lowered::FusedProduct>();
  }

  /// True for a product that overwrites its output, as the first of a sum.
  static bool overwrites(const LoweredOp& op) {
    const auto* const fused = op.as<lowered::FusedProduct>();
    return fused != nullptr && fused->product == op.op && op.in[*fused->fusion.target] == kNone;
  }

  /// True for a product that is fused into an accumulator, in registers, on all replicas.
  bool is_step(const LoweredOp& op) const {
    const auto* const fused = op.as<lowered::FusedProduct>();
    if (fused == nullptr || !fused->fusion.target || !fused->fusion.in_registers) return false;
    if (op.exec || op.out.size() != 1) return false;
    const BufferId target = op.out[0];
    if (op.in[*fused->fusion.target] != target || std::ranges::count(op.in, target) != 1) return false;
    if (fused->lhs == target || fused->rhs == target) return false;
    const Op& product = *fused->product;
    return product.def->kernel.product &&
           product.def->kernel.product(eval_spec(ir_, program_, product, kernels_));
  }

  /// True if op i reduces the target of an open chain, at no more products than before, while no other op
  /// reads the tensor that it reduces.
  bool reduces(std::size_t i) const {
    const LoweredOp& op = ops_[i];
    if (!op.is<lowered::Plain>() || op.exec || op.in.size() != 1 || op.out.size() != 1) return false;
    const auto chain = chains_.find(op.in[0]);
    if (chain == chains_.end() || !op.op->def->kernel.fusion) return false;
    const std::optional<ProductFusion> fusion =
        op.op->def->kernel.fusion(eval_spec(ir_, program_, *op.op, kernels_));
    if (!fusion || fusion->target || !fusion->in_registers) return false;
    if (crosses_ranks(group_of(ir_, *fusion), ranks_)) return false;
    const auto users = users_.find(op.out[0]);
    if (users != users_.end() && users->second.contains(op.in[0])) return false;
    const std::int64_t group = fusion->group ? fusion->group->group_size() : ir_.replication();
    return blocks(op) * group <= blocks(ops_[chain->second.at.back()]) &&
           (op.out == op.in || is_overwritten(op.in[0], i));
  }

  /// True if the value of the buffer after op i is overwritten before any op reads it, or if op i and the
  /// steps of a chain that begins with the target are all that read it.
  bool is_overwritten(BufferId id, std::size_t i) const {
    const std::optional<std::size_t> next = positions_->next_access(id, i);
    if (!next) {
      const std::vector<std::size_t>& at = chains_.at(id).at;
      return overwrites(ops_[at.front()]) && static_cast<std::size_t>(counts_[id].reads) == at.size();
    }
    const LoweredOp& op = ops_[*next];
    const auto* const fused = op.as<lowered::FusedProduct>();
    if (!op.is_single() || op.exec || (fused && (fused->lhs == id || fused->rhs == id))) return false;
    for (std::size_t k = 0; k < op.in.size(); ++k) {
      if (op.in[k] == id && op.op->def->influences(k)) return false;
    }
    return std::ranges::find(op.out, id) != op.out.end();
  }

  std::int64_t blocks(const LoweredOp& op) const {
    return dedup_ ? ir_.partitions().num_blocks(op.facts[0]) : ir_.replication();
  }

  /// Ends the chains that must be complete before op i; not the chain of `own`, which it continues or
  /// reduces.
  void close_touched(std::size_t i, BufferId own) {
    std::set<BufferId> done;
    for_each_access(ops_[i], [&](BufferId id, bool is_written) {
      if (id != own && chains_.contains(id)) done.insert(id);
      const auto users = is_written ? users_.find(id) : users_.end();
      if (users != users_.end()) done.insert(users->second.begin(), users->second.end());
    });
    for (const BufferId id : done) close(id);
  }

  std::size_t operand_bytes(const LoweredOp& op) const {
    const lowered::FusedProduct& fused = product_of(op);
    return bytes_of(program_.buffers[fused.lhs].type) + bytes_of(program_.buffers[fused.rhs].type);
  }

  /// True if there is a chain of products of the same form, with operands that are small compared to the
  /// target.
  bool continues(const LoweredOp& op) const {
    const auto chain = chains_.find(op.out[0]);
    if (chain == chains_.end()) return false;
    const Op& a = *product_of(ops_[chain->second.at.back()]).product;
    const Op& b = *product_of(op).product;
    const auto same_type = [this](TensorId x, TensorId y) {
      return ir_.tensor(x).type == ir_.tensor(y).type;
    };
    return a.def == b.def && a.attrs == b.attrs && std::ranges::equal(a.inputs, b.inputs, same_type) &&
           chain->second.bytes + operand_bytes(op) <= bytes_of(program_.buffers[op.out[0]].type);
  }

  void add(std::size_t i) {
    const LoweredOp& op = ops_[i];
    Chain& chain = chains_[op.out[0]];
    chain.at.push_back(i);
    chain.bytes += operand_bytes(op);
    users_[product_of(op).lhs].insert(op.out[0]);
    users_[product_of(op).rhs].insert(op.out[0]);
  }

  void close(BufferId target) {
    const std::vector<std::size_t>& at = chains_.at(target).at;
    at.size() > 1 ? finish(target, at.back()) : forget(target);
  }

  void forget(BufferId target) {
    for (const std::size_t i : chains_.at(target).at) {
      users_[product_of(ops_[i]).lhs].erase(target);
      users_[product_of(ops_[i]).rhs].erase(target);
    }
    chains_.erase(target);
  }

  /// Moves all products of the chain into op `last`.
  void finish(BufferId target, std::size_t last) {
    std::vector<lowered::AccumulationStep> steps;
    for (const std::size_t i : chains_.at(target).at) {
      lowered::AccumulationStep step{ops_[i].op, ops_[i].in, product_of(ops_[i])};
      step.in[*step.product.fusion.target] = kNone;
      for (BufferId& id : step.in) id = id == kNone ? kNone : copy_of(id, i, last);
      steps.push_back(std::move(step));
      dead_[i] = i != last;
    }
    const bool is_overwritten_first = overwrites(ops_[chains_.at(target).at.front()]);
    forget(target);
    LoweredOp& op = ops_[last];
    const auto* const own = op.as<lowered::FusedProduct>();
    ProductFusion fusion =
        own ? own->fusion : *op.op->def->kernel.fusion(eval_spec(ir_, program_, *op.op, kernels_));
    op.in = {is_overwritten_first ? kNone : target};
    op.form = lowered::FusedAccumulation{std::move(fusion), std::move(steps)};
  }

  /// A factor as op i would read it: a copy where it is written before `last`.
  BufferId copy_of(BufferId id, std::size_t i, std::size_t last) {
    const std::optional<std::size_t> next = positions_->first_write(id, i);
    if (!next || *next >= last) return id;
    const auto [copy, fresh] = copies_.try_emplace({id, *next}, kNone);
    if (fresh) {
      copy->second = program_.buffers.next();
      const PartitionId storage = program_.buffers[id].storage;
      program_.buffers.push_back({.tensor = program_.buffers[id].tensor, .type = program_.buffers[id].type});
      inserted_[*next].push_back({.in = {id},
                                  .out = {copy->second},
                                  .facts = {storage},
                                  .path = ops_[i].path,
                                  .form = lowered::Copy{}});
    }
    return copy->second;
  }

  void apply() {
    std::vector<LoweredOp> ops;
    ops.reserve(ops_.size());
    for (std::size_t i = 0; i < ops_.size(); ++i) {
      const auto before = inserted_.find(i);
      if (before != inserted_.end()) std::ranges::move(before->second, std::back_inserter(ops));
      if (!dead_[i]) ops.push_back(std::move(ops_[i]));
    }
    ops_ = std::move(ops);
  }

  const Ir& ir_;
  const kernels::KernelTable& kernels_;
  LoweredProgram& program_;
  const IdVector<BufferId, Accesses>& counts_;  ///< Accesses in the whole program, before any change.
  AccessSlots& slots_;
  bool dedup_;
  const RankMap& ranks_;
  std::vector<LoweredOp>& ops_;
  std::vector<bool> dead_;
  std::optional<AccessPositions> positions_;                     ///< Before any change.
  std::map<BufferId, Chain> chains_;                             ///< Open ones, by target.
  std::map<BufferId, std::set<BufferId>> users_;                 ///< Targets of products of it.
  std::map<std::pair<BufferId, std::size_t>, BufferId> copies_;  ///< Copies of a buffer before that write.
  std::map<std::size_t, std::vector<LoweredOp>> inserted_;       ///< Before that position.
};

}  // namespace

bool fuse_accumulations(const Ir& ir, const kernels::KernelTable& kernels, LoweredProgram& program,
                        bool dedup, const RankMap& ranks) {
  const auto may_be_step = [](const LoweredOp& op) {
    const auto* const fused = op.as<lowered::FusedProduct>();
    return fused != nullptr && fused->fusion.target;
  };
  if (!any_op(program.ops, may_be_step)) return false;
  const IdVector<BufferId, Accesses> counts = count_accesses(program);
  AccessSlots slots(program.buffers.size());
  const auto visit = [&](const auto& self, std::vector<LoweredOp>& ops) -> void {
    for (LoweredOp& op : ops) {
      if (auto* const loop = op.as<lowered::Loop>()) self(self, loop->body);
    }
    AccumulationFuser(ir, kernels, program, counts, slots, dedup, ranks, ops).run();
  };
  visit(visit, program.ops);
  return true;
}

}  // namespace popsr
