// Sums of products in one form: a product that is added to a value that nobody else reads is accumulated
// into it, as accumulate_ does.
#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "popsr/exec/product_kernel.h"
#include "popsr/ir/op_def.h"
#include "popsr/runtime/lowering/accesses.h"
#include "popsr/runtime/lowering/rewrites.h"

namespace popsr {
namespace {

class SumAccumulator {
 public:
  SumAccumulator(const Ir& ir, const kernels::KernelTable& kernels, LoweredProgram& program)
      : ir_(ir),
        kernels_(kernels),
        program_(program),
        counts_(count_accesses(program)),
        seen_(program.buffers.size(), false),
        now_(program.buffers.size()) {
    for (const BufferId id : now_.ids()) now_[id] = id;
  }

  void run() {
    visit(program_.ops);
    for_each_op(program_.ops, [this](LoweredOp& op) {
      for_each_operand(op, [this](BufferId& id, bool) { id = now_[id]; });
    });
  }

 private:
  using Writers = std::map<BufferId, std::size_t>;  ///< Positions in one list so far, by the buffer written.

  void visit(std::vector<LoweredOp>& ops) {
    Writers writers;
    std::vector<bool> dead(ops.size(), false);
    for (std::size_t i = 0; i < ops.size(); ++i) {
      for_each_body(ops[i], [this](std::vector<LoweredOp>& body) { visit(body); });
      accumulate(ops, i, writers);
      if (const std::optional<std::size_t> joined = accumulate_slices(ops, i, writers)) {
        dead[i] = dead[*joined] = true;
      }
      for_each_operand(ops[i], [this](BufferId id, bool) { seen_[id] = true; });
      for (const BufferId id : ops[i].out) writers[id] = i;
    }
    std::size_t at = 0;
    std::erase_if(ops, [&dead, &at](const LoweredOp&) { return dead[at++]; });
  }

  /// Op i as an accumulation of a product, where it is one.
  void accumulate(std::vector<LoweredOp>& ops, std::size_t i, const Writers& writers) {
    LoweredOp& op = ops[i];
    const auto is_sum_of_products = [&](BufferId id) {
      return writers.contains(id) && is_plain(ops[writers.at(id)]) &&
             ops[writers.at(id)].op->def->kernel.product;
    };
    if (!is_plain(op) || !op.op->def->kernel.fusion || std::ranges::none_of(op.in, is_sum_of_products))
      return;
    const std::optional<ProductFusion> fusion = op.op->def->kernel.fusion(eval_spec(ir_, *op.op, kernels_));
    if (!fusion || !fusion->target || !fusion->in_registers) return;
    const std::size_t target = *fusion->target, product = fusion->product_input;
    if (op.in[target] != op.out[0] && !overwrite_target(ops, op, *fusion, writers)) return;
    const BufferId into = op.in[target];
    if (is_small_product(ops, into, writers) && is_small_product(ops, op.in[product], writers))
      fuse(ops[writers.at(into)], true);
  }

  /// Lets the result of `op` be where its target is, or where its other operand is, when that pays.
  bool overwrite_target(std::vector<LoweredOp>& ops, LoweredOp& op, const ProductFusion& fusion,
                        const Writers& writers) {
    const auto pays = [&](std::size_t target, std::size_t product) {
      return is_spent(op.in[target], writers) && is_spent(op.in[product], writers) &&
             is_small_product(ops, op.in[product], writers);
    };
    const std::size_t target = *fusion.target, product = fusion.product_input;
    if (!op.op->def->memory.effects.empty() || !is_fresh(op.out[0])) return false;
    if (fusion.symmetric && pays(product, target)) {
      std::swap(op.in[target], op.in[product]);
    } else if (!pays(target, product)) {
      return false;
    }
    now_[op.out[0]] = now_[op.in[target]];
    return true;
  }

  /// Op i, a sum of joined products, as accumulations of them; the position of the op that joined them.
  std::optional<std::size_t> accumulate_slices(std::vector<LoweredOp>& ops, std::size_t i,
                                               const Writers& writers) {
    const LoweredOp& sum = ops[i];
    if (slices(sum) != Slices::kAdded || !is_spent(sum.in[0], writers) || !is_fresh(sum.out[0]))
      return std::nullopt;
    const std::size_t joined = writers.at(sum.in[0]);
    if (slices(ops[joined]) != Slices::kJoined) return std::nullopt;
    std::vector<std::size_t> products;
    for (const BufferId id : ops[joined].in) {
      if (!is_spent(id, writers) || !is_small_product(ops, id, writers)) return std::nullopt;
      products.push_back(writers.at(id));
      if (ops[products.back()].facts[0] != sum.facts[0]) return std::nullopt;
    }
    if (products.size() < 2 || !std::ranges::is_sorted(products, std::ranges::less_equal{}))
      return std::nullopt;
    for (const std::size_t at : products) {
      ops[at].out = {sum.out[0]};
      fuse(ops[at], at == products.front());
      if (at == products.back()) ops[at].op = sum.op;
    }
    return joined;
  }

  /// A product as one that is accumulated into its output, or that overwrites it.
  static void fuse(LoweredOp& op, bool overwrites) {
    const auto factors = [overwrites](const std::byte* const*) {
      return kernels::AccumulationFactors{.overwrites = overwrites};
    };
    op.form = lowered::FusedProduct{
        .fusion = {.product_input = 1, .target = 0, .in_registers = true, .factors = factors},
        .product = op.op,
        .seeds = op.seeds,
        .path = op.path,
        .lhs = op.in[0],
        .rhs = op.in[1]};
    op.in = {overwrites ? kNone : op.out[0], kNone};
  }

  static bool is_plain(const LoweredOp& op) { return op.is<lowered::Plain>() && !op.exec; }

  Slices slices(const LoweredOp& op) const {
    if (!is_plain(op) || !op.op->def->kernel.slices) return Slices::kNone;
    return op.op->def->kernel.slices(eval_spec(ir_, *op.op, kernels_));
  }

  bool is_own(BufferId id) const {
    return program_.buffers[id].kind == BufferKind::kActivation && counts_[id].writes == 1;
  }

  /// True if the buffer is written here for the first and only time: no iteration reads what the one before
  /// wrote.
  bool is_fresh(BufferId id) const { return is_own(id) && !seen_[id]; }

  /// True if the buffer is written once, by an op of the list, and read by the next op alone.
  bool is_spent(BufferId id, const Writers& writers) const {
    return id != kNone && is_own(id) && counts_[id].reads == 1 && writers.contains(id);
  }

  /// True for a product whose operands are small beside it, so that to store it costs more than to compute
  /// it, and which is not one product with a weight for all blocks.
  bool is_small_product(const std::vector<LoweredOp>& ops, BufferId id, const Writers& writers) const {
    if (!writers.contains(id) || program_.buffers[id].kind != BufferKind::kActivation) return false;
    const LoweredOp& op = ops[writers.at(id)];
    if (!is_plain(op) || !op.op->def->kernel.product) return false;
    if (program_.buffers[op.in[1]].kind != BufferKind::kActivation) return false;
    if (!op.op->def->kernel.product(eval_spec(ir_, *op.op, kernels_))) return false;
    std::size_t operands = 0;
    for (const BufferId in : op.in) operands += bytes_of(program_.buffers[in].type);
    return operands <= bytes_of(program_.buffers[id].type);
  }

  const Ir& ir_;
  const kernels::KernelTable& kernels_;
  LoweredProgram& program_;
  IdVector<BufferId, Accesses> counts_;
  IdVector<BufferId, bool> seen_;     ///< Accessed by an op before this one.
  IdVector<BufferId, BufferId> now_;  ///< The buffer that a sum is in.
};

}  // namespace

void accumulate_sums(const Ir& ir, const kernels::KernelTable& kernels, LoweredProgram& program) {
  SumAccumulator(ir, kernels, program).run();
}

}  // namespace popsr
