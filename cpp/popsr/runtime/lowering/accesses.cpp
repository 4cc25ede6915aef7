#include "popsr/runtime/lowering/accesses.h"

namespace popsr {

IdVector<BufferId, Accesses> count_accesses(const LoweredProgram& program) {
  IdVector<BufferId, Accesses> counts(program.buffers.size());
  for_each_op(program.ops, [&counts](const LoweredOp& op) {
    for_each_operand(op, [&counts](BufferId id, bool is_written) {
      ++(is_written ? counts[id].writes : counts[id].reads);
    });
  });
  return counts;
}

bool touches(const LoweredOp& op, BufferId buffer) {
  bool found = false;
  for_each_access(op, [&](BufferId id, bool) { found = found || id == buffer; });
  return found;
}

}  // namespace popsr
