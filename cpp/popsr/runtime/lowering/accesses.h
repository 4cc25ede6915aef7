// Reads and writes of buffers by lowered ops.
#pragma once

#include "popsr/runtime/lowering/lowered_program.h"

namespace popsr {

struct Accesses {
  int reads = 0;
  int writes = 0;
};

/// Numbers of reads and writes of each buffer in the program's text.
IdVector<BufferId, Accesses> count_accesses(const LoweredProgram& program);

/// Calls visit(id, is_written) for each operand of the op and in its bodies.
template <class Visit>
void for_each_access(const LoweredOp& op, const Visit& visit) {
  for_each_operand(op, visit);
  for_each_body(op, [&visit](const std::vector<LoweredOp>& body) {
    for (const LoweredOp& inner : body) for_each_access(inner, visit);
  });
}

/// True if the buffer is an operand of the op or in a body of it.
bool touches(const LoweredOp& op, BufferId buffer);

}  // namespace popsr
