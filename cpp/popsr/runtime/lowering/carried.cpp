// Values that a loop carries, written where the next iteration reads them: the op that makes one takes the
// place of its copy.
#include <algorithm>
#include <cstddef>
#include <optional>
#include <vector>

#include "popsr/ir/op_def.h"
#include "popsr/runtime/lowering/accesses.h"
#include "popsr/runtime/lowering/rewrites.h"

namespace popsr {
namespace {

class CarriedWrites {
 public:
  CarriedWrites(const Ir& ir, LoweredProgram& program)
      : ir_(ir), program_(program), counts_(count_accesses(program)), now_(program.buffers.size()) {
    for (const BufferId id : now_.ids()) now_[id] = id;
  }

  void run() {
    visit(program_.ops, false);
    replace_buffers(program_.ops, now_);
  }

 private:
  void visit(std::vector<LoweredOp>& ops, bool is_iteration) {
    for (LoweredOp& op : ops) {
      for_each_body(op, [&](std::vector<LoweredOp>& body) { visit(body, op.is<lowered::Loop>()); });
    }
    if (!is_iteration) return;
    std::vector<bool> dead(ops.size(), false);
    for (std::size_t at = ops.size(); at-- > 0 && ops[at].is<lowered::Copy>();) {
      const BufferId value = ops[at].in[0], carried = ops[at].out[0];
      const std::optional<std::size_t> maker = maker_of(ops, dead, at);
      if (!maker) continue;
      ops[*maker].out[0] = carried;
      now_[value] = carried;
      counts_[value] = {};
      dead[at] = true;
    }
    erase_dead(ops, dead);
  }

  /// Op that can write the value that the copy at `end` carries; nullopt if the value before it is still
  /// needed, or the new one would be visible outside the iteration.
  std::optional<std::size_t> maker_of(const std::vector<LoweredOp>& ops, const std::vector<bool>& dead,
                                      std::size_t end) const {
    const LoweredOp& copy = ops[end];
    const BufferId value = copy.in[0], carried = copy.out[0];
    const auto is_own = [this](BufferId id) { return program_.buffers[id].kind == BufferKind::kActivation; };
    if (!is_own(value) || !is_own(carried) || counts_[value].writes != 1 || copy.exec) return std::nullopt;
    std::optional<std::size_t> maker;
    int reads = 0, writes = 0;
    for (std::size_t i = 0; i < ops.size(); ++i) {
      if (dead[i]) continue;
      const bool makes = std::ranges::find(ops[i].out, value) != ops[i].out.end();
      if (makes && (reads > 0 || !can_write(ops[i], carried, copy))) return std::nullopt;
      if (makes) maker = i;
      for_each_access(ops[i], [&](BufferId id, bool is_written) {
        if (id == value && !is_written) ++reads;
        if (id == carried && is_written) ++writes;
      });
      const bool is_late = maker && !makes && i < end && touches(ops[i], carried);
      if (is_late) return std::nullopt;
    }
    if (reads != counts_[value].reads || writes != 1) return std::nullopt;
    return maker;
  }

  /// True if the op's kernel may write to `carried`, which it reads as an operand of an op in place at most.
  bool can_write(const LoweredOp& op, BufferId carried, const LoweredOp& copy) const {
    const auto* const plain = op.as<lowered::Plain>();
    if (plain == nullptr || plain->writes || op.exec || op.out.size() != 1) return false;
    if (op.facts[0] != copy.facts[0] || program_.seed_rules.of(ir_, *op.op) || op.op->def->numerics.random)
      return false;
    if (op.op->def->program.observable || !op.op->def->memory.effects.empty()) return false;
    const auto reads = std::ranges::count(op.in, carried);
    return reads == 0 ||
           (reads == 1 && op.in[0] == carried && op.op->def->memory.in_place && plain->reads.empty());
  }

  const Ir& ir_;
  LoweredProgram& program_;
  IdVector<BufferId, Accesses> counts_;
  IdVector<BufferId, BufferId> now_;  ///< The buffer that a value is in.
};

}  // namespace

void write_carried(const Ir& ir, LoweredProgram& program) {
  const auto is_loop = [](const LoweredOp& op) { return op.is<lowered::Loop>(); };
  if (any_op(program.ops, is_loop)) CarriedWrites(ir, program).run();
}

}  // namespace popsr
