// Sums of products in one form: a product that is added to a value that nobody else reads is accumulated
// into it, as accumulate_ does.
#include <algorithm>
#include <cstddef>
#include <cstdint>
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
        writers_(program.buffers.size()),
        now_(program.buffers.size()) {
    for (const BufferId id : now_.ids()) now_[id] = id;
  }

  void run() {
    visit(program_.ops);
    replace_buffers(program_.ops, now_);
  }

 private:
  struct List {
    std::vector<LoweredOp>& ops;
    std::uint32_t number;  ///< From 1 on.
  };
  /// The op that wrote a buffer last, so far.
  struct Writer {
    std::uint32_t list = 0;
    std::size_t at = 0;
  };

  /// The op of the list that wrote the buffer last; null if it is in another list or there is none.
  LoweredOp* writer(const List& list, BufferId id) const {
    return id != kNone && writers_[id].list == list.number ? &list.ops[writers_[id].at] : nullptr;
  }

  void visit(std::vector<LoweredOp>& ops) {
    const List list{ops, ++lists_};
    std::vector<bool> dead(ops.size(), false);
    for (std::size_t i = 0; i < ops.size(); ++i) {
      for_each_body(ops[i], [this](std::vector<LoweredOp>& body) { visit(body); });
      accumulate(list, ops[i]);
      if (accumulate_slices(list, ops[i])) dead[i] = dead[writers_[ops[i].in[0]].at] = true;
      for_each_operand(ops[i], [this](BufferId id, bool) { seen_[id] = true; });
      for (const BufferId id : ops[i].out) writers_[id] = {list.number, i};
    }
    erase_dead(ops, dead);
  }

  /// The op as an accumulation of a product, where it is one.
  void accumulate(const List& list, LoweredOp& op) {
    const auto may_be_product = [&](BufferId id) {
      const LoweredOp* const from = writer(list, id);
      return from != nullptr && is_plain(*from) && from->op->def->kernel.product;
    };
    if (!is_plain(op) || !op.op->def->kernel.fusion || std::ranges::none_of(op.in, may_be_product)) return;
    const std::optional<ProductFusion> fusion =
        op.op->def->kernel.fusion(eval_spec(ir_, program_, *op.op, kernels_));
    if (!fusion || !fusion->target || !fusion->in_registers) return;
    const std::size_t target = *fusion->target, product = fusion->product_input;
    if (op.in[target] != op.out[0] && !overwrite_target(list, op, *fusion)) return;
    const BufferId into = op.in[target];
    if (is_small_product(list, into) && is_small_product(list, op.in[product]))
      fuse(*writer(list, into), true);
  }

  /// Lets the result of `op` be where its target is, or where its other operand is, when that pays.
  bool overwrite_target(const List& list, LoweredOp& op, const ProductFusion& fusion) {
    const auto pays = [&](std::size_t target, std::size_t product) {
      return is_spent(list, op.in[target]) && is_spent(list, op.in[product]) &&
             is_small_product(list, op.in[product]);
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

  /// Makes accumulations of the products that `sum` adds and that the op before it joined; true if they are
  /// some: neither of these ops is needed then.
  bool accumulate_slices(const List& list, const LoweredOp& sum) {
    if (slices(sum) != Slices::kAdded || !is_spent(list, sum.in[0]) || !is_fresh(sum.out[0])) return false;
    const LoweredOp& joined = *writer(list, sum.in[0]);
    if (slices(joined) != Slices::kJoined) return false;
    std::vector<LoweredOp*> products;
    for (const BufferId id : joined.in) {
      if (!is_spent(list, id) || !is_small_product(list, id)) return false;
      products.push_back(writer(list, id));
      if (products.back()->facts[0] != sum.facts[0]) return false;
    }
    if (products.size() < 2 || !std::ranges::is_sorted(products, std::ranges::less_equal{})) return false;
    for (LoweredOp* const product : products) {
      product->out = {sum.out[0]};
      fuse(*product, product == products.front());
    }
    products.back()->op = sum.op;
    return true;
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
    return op.op->def->kernel.slices(eval_spec(ir_, program_, *op.op, kernels_));
  }

  bool is_own(BufferId id) const {
    return program_.buffers[id].kind == BufferKind::kActivation && counts_[id].writes == 1;
  }

  /// True if the buffer is written here for the first and only time: no iteration reads a write of the
  /// previous one.
  bool is_fresh(BufferId id) const { return is_own(id) && !seen_[id]; }

  /// True if the buffer is written once, by an op of the list, and read by the next op alone.
  bool is_spent(const List& list, BufferId id) const {
    return writer(list, id) != nullptr && is_own(id) && counts_[id].reads == 1;
  }

  /// True for a product whose operands are small beside it, so that to store it costs more than to compute
  /// it, and which is not one product with a weight for all blocks.
  bool is_small_product(const List& list, BufferId id) const {
    const LoweredOp* const from = writer(list, id);
    if (from == nullptr || program_.buffers[id].kind != BufferKind::kActivation) return false;
    const LoweredOp& op = *from;
    if (!is_plain(op) || !op.op->def->kernel.product) return false;
    if (program_.buffers[op.in[1]].kind != BufferKind::kActivation) return false;
    if (!op.op->def->kernel.product(eval_spec(ir_, program_, *op.op, kernels_))) return false;
    std::size_t operands = 0;
    for (const BufferId in : op.in) operands += bytes_of(program_.buffers[in].type);
    return operands <= bytes_of(program_.buffers[id].type);
  }

  const Ir& ir_;
  const kernels::KernelTable& kernels_;
  LoweredProgram& program_;
  IdVector<BufferId, Accesses> counts_;
  IdVector<BufferId, bool> seen_;  ///< Accessed by an op before this one.
  IdVector<BufferId, Writer> writers_;
  std::uint32_t lists_ = 0;           ///< Visited so far.
  IdVector<BufferId, BufferId> now_;  ///< The buffer that a sum is in.
};

}  // namespace

void accumulate_sums(const Ir& ir, const kernels::KernelTable& kernels, LoweredProgram& program) {
  const auto may_be_product = [](const LoweredOp& op) {
    return op.is<lowered::Plain>() && op.op->def->kernel.product;
  };
  if (any_op(program.ops, may_be_product)) SumAccumulator(ir, kernels, program).run();
}

}  // namespace popsr
