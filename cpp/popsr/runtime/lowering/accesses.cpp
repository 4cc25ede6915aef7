#include "popsr/runtime/lowering/accesses.h"

#include <algorithm>

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

void replace_buffers(std::vector<LoweredOp>& ops, const IdVector<BufferId, BufferId>& now) {
  for_each_op(ops,
              [&now](LoweredOp& op) { for_each_operand(op, [&now](BufferId& id, bool) { id = now[id]; }); });
}

void erase_dead(std::vector<LoweredOp>& ops, const std::vector<bool>& dead) {
  std::size_t at = 0;
  std::erase_if(ops, [&dead, &at](const LoweredOp&) { return dead[at++]; });
}

AccessPositions::AccessPositions(const std::vector<LoweredOp>& ops) {
  for (std::size_t i = 0; i < ops.size(); ++i) {
    for_each_access(ops[i], [&](BufferId id, bool is_written) {
      accesses_[id].push_back(i);
      if (is_written) writes_[id].push_back(i);
    });
  }
}

std::optional<std::size_t> AccessPositions::next_access(BufferId buffer, std::size_t at) const {
  return first(accesses_, buffer, at + 1);
}

std::optional<std::size_t> AccessPositions::first_write(BufferId buffer, std::size_t at) const {
  return first(writes_, buffer, at);
}

std::optional<std::size_t> AccessPositions::first(const Positions& positions, BufferId buffer,
                                                  std::size_t at) {
  const auto found = positions.find(buffer);
  if (found == positions.end()) return std::nullopt;
  const auto next = std::ranges::lower_bound(found->second, at);
  return next == found->second.end() ? std::nullopt : std::optional(*next);
}

}  // namespace popsr
