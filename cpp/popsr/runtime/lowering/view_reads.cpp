// Products that read and write through views: transposes and slices around them are not computed.
#include <algorithm>
#include <map>
#include <ranges>
#include <utility>

#include "popsr/exec/block_kernel.h"
#include "popsr/ir/op_def.h"
#include "popsr/runtime/lowering/accesses.h"
#include "popsr/runtime/lowering/rewrites.h"

namespace popsr {
namespace {

/// One list of ops.
class ViewReader {
 public:
  /// `last`: the last access of each buffer; `start` is greater than all of them.
  ViewReader(const Ir& ir, const kernels::KernelTable& kernels, const LoweredProgram& program,
             IdVector<BufferId, Accesses>& counts, IdVector<BufferId, std::size_t>& last, std::size_t start,
             std::vector<LoweredOp>& ops)
      : ir_(ir),
        kernels_(kernels),
        program_(program),
        counts_(counts),
        last_(last),
        start_(start),
        ops_(ops),
        dead_(ops.size(), false) {}

  void run() {
    for (at_ = 0; at_ < ops_.size(); ++at_) {
      LoweredOp& op = ops_[at_];
      const bool reads_views = supports_views(op);
      if (reads_views) read_through(op);
      const std::optional<StridedView> view = view_of(op);
      const bool is_written = view && write_through(op, *view);
      record_accesses(op);
      if (reads_views) makers_[op.out[0]] = at_;
      if (view && !is_written) note(op, *view);
    }
    drop_unread();
    std::size_t at = 0;
    std::erase_if(ops_, [this, &at](const LoweredOp&) { return dead_[at++]; });
  }

 private:
  /// A view that an op of the list copies.
  struct Copied {
    BufferId from;
    StridedView view;
  };

  bool supports_views(const LoweredOp& op) const {
    return op.is<lowered::Plain>() && op.op->def->kernel.supports_views != nullptr && op.out.size() == 1;
  }

  /// The view that the op copies, if nobody can see that it does not.
  std::optional<StridedView> view_of(const LoweredOp& op) const {
    if (!op.is<lowered::Plain>() || op.op->def->kernel.strided == nullptr || op.op->def->program.observable)
      return std::nullopt;
    if (op.out.size() != 1 || op.out[0] == op.in[0]) return std::nullopt;
    if (counts_[op.out[0]].writes != 1 || program_.buffers[op.out[0]].kind != BufferKind::kActivation)
      return std::nullopt;
    return op.op->def->kernel.strided(eval_spec(ir_, program_, *op.op, kernels_));
  }

  /// Records the copy; a copy of a copy also as a view of the original.
  void note(const LoweredOp& op, const StridedView& view) {
    Copied copied{op.in[0], view};
    if (const auto inner = copied_.find(op.in[0]); inner != copied_.end()) {
      if (auto both = compose(view, inner->second.view)) copied = {inner->second.from, *std::move(both)};
    }
    copies_.push_back(at_);
    copies_of_[copied.from].push_back(op.out[0]);
    copied_.emplace(op.out[0], std::move(copied));
  }

  /// Operands that are copies are read where they were copied from.
  void read_through(LoweredOp& op) {
    for (std::size_t j = 0; j < op.in.size(); ++j) {
      const auto found = op.in[j] == kNone ? copied_.end() : copied_.find(op.in[j]);
      if (found == copied_.end() || found->second.from == op.out[0]) continue;
      EvalSpec spec = eval_spec(ir_, program_, *op.op, kernels_);
      // The product may have the copy in another shape.
      const auto view = compose(dense_view(spec.inputs[j]->shape), found->second.view);
      if (!view) continue;
      lowered::Plain plain = *op.as<lowered::Plain>();
      plain.reads.resize(op.in.size());
      plain.reads[j] = *view;
      spec.reads = plain.reads;
      if (!op.op->def->kernel.supports_views(spec)) continue;
      --counts_[op.in[j]].reads;
      ++counts_[found->second.from].reads;
      op.in[j] = found->second.from;
      op.form = std::move(plain);
    }
  }

  /// Lets the op whose result is copied here, and read nowhere else, write the copy.
  bool write_through(const LoweredOp& copy, const StridedView& view) {
    const auto found = makers_.find(copy.in[0]);
    const Accesses& count = counts_[copy.in[0]];
    if (found == makers_.end() || count.reads != 1 || count.writes != 1) return false;
    LoweredOp& maker = ops_[found->second];
    if (last_[copy.out[0]] >= start_ + found->second) return false;
    EvalSpec spec = eval_spec(ir_, program_, *maker.op, kernels_);
    lowered::Plain plain = *maker.as<lowered::Plain>();
    plain.writes = inverse(view, spec.outputs[0].shape);
    spec.reads = plain.reads;
    spec.writes = plain.writes;
    if (!plain.writes || maker.exec != copy.exec || !maker.op->def->kernel.supports_views(spec)) return false;
    maker.form = std::move(plain);
    maker.out[0] = copy.out[0];
    dead_[at_] = true;
    makers_.erase(found);
    return true;
  }

  /// Forgets copies of buffers that the op writes, since they hold the old values.
  void record_accesses(const LoweredOp& op) {
    for_each_access(op, [this](BufferId id, bool is_written) {
      last_[id] = start_ + at_;
      if (!is_written) return;
      copied_.erase(id);
      makers_.erase(id);
      const auto found = copies_of_.find(id);
      if (found == copies_of_.end()) return;
      for (const BufferId copy : found->second) copied_.erase(copy);
      copies_of_.erase(found);
    });
  }

  void drop_unread() {
    for (const std::size_t at : std::views::reverse(copies_)) {
      const LoweredOp& op = ops_[at];
      if (counts_[op.out[0]].reads > 0) continue;
      dead_[at] = true;
      --counts_[op.in[0]].reads;
    }
  }

  const Ir& ir_;
  const kernels::KernelTable& kernels_;
  const LoweredProgram& program_;
  IdVector<BufferId, Accesses>& counts_;
  IdVector<BufferId, std::size_t>& last_;
  std::size_t start_;
  std::vector<LoweredOp>& ops_;
  std::vector<bool> dead_;
  std::size_t at_ = 0;
  std::map<BufferId, Copied> copied_;                    ///< Copied buffer by its copy.
  std::map<BufferId, std::vector<BufferId>> copies_of_;  ///< Copies by the copied buffer.
  std::map<BufferId, std::size_t> makers_;               ///< Ops that take views, by their result.
  std::vector<std::size_t> copies_;                      ///< Ascending positions.
};

}  // namespace

void read_through_views(const Ir& ir, const kernels::KernelTable& kernels, LoweredProgram& program) {
  const auto may_be_view = [](const LoweredOp& op) {
    return op.is<lowered::Plain>() && op.op->def->kernel.strided;
  };
  if (!any_op(program.ops, may_be_view)) return;
  IdVector<BufferId, Accesses> counts = count_accesses(program);
  IdVector<BufferId, std::size_t> last(program.buffers.size(), 0);
  std::size_t start = 1;
  const auto visit = [&](const auto& self, std::vector<LoweredOp>& ops) -> void {
    for (LoweredOp& op : ops) {
      // Merged ops run at once: what one of them writes is not there for the next.
      if (!op.is<lowered::Merged>())
        for_each_body(op, [&](std::vector<LoweredOp>& body) { self(self, body); });
    }
    const std::size_t size = ops.size();
    ViewReader(ir, kernels, program, counts, last, start, ops).run();
    start += size;
  };
  visit(visit, program.ops);
}

}  // namespace popsr
