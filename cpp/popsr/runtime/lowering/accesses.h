// Reads and writes of buffers by lowered ops.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <vector>

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

/// Names buffer now[id] wherever id stands.
void replace_buffers(std::vector<LoweredOp>& ops, const IdVector<BufferId, BufferId>& now);

/// Takes out of a list the ops at positions that are dead.
void erase_dead(std::vector<LoweredOp>& ops, const std::vector<bool>& dead);

/// Positions of the ops of one list that access each buffer, themselves or in their bodies.
class AccessPositions {
 public:
  explicit AccessPositions(const std::vector<LoweredOp>& ops);

  /// The first position after `at` whose op reads or writes the buffer.
  std::optional<std::size_t> next_access(BufferId buffer, std::size_t at) const;
  /// The first position from `at` on whose op writes the buffer.
  std::optional<std::size_t> first_write(BufferId buffer, std::size_t at) const;

 private:
  using Positions = std::map<BufferId, std::vector<std::size_t>>;  ///< Ascending.

  static std::optional<std::size_t> first(const Positions& positions, BufferId buffer, std::size_t at);

  Positions accesses_, writes_;
};

}  // namespace popsr
