#include "popsr/runtime/lowering/accesses.h"

#include <algorithm>
#include <numeric>

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

AccessPositions::AccessPositions(const std::vector<LoweredOp>& ops, AccessSlots& slots) : slots_(slots) {
  slots.start_list();
  for (const LoweredOp& op : ops) for_each_access(op, [&slots](BufferId id, bool) { slots.add(id); });
  accesses_ = table(ops, false);
  writes_ = table(ops, true);
}

AccessPositions::Table AccessPositions::table(const std::vector<LoweredOp>& ops, bool writes_only) const {
  const auto for_each_position = [&](const auto& visit) {
    for (std::size_t i = 0; i < ops.size(); ++i) {
      for_each_access(ops[i], [&](BufferId id, bool is_written) {
        if (is_written || !writes_only) visit(*slots_.find(id), static_cast<std::uint32_t>(i));
      });
    }
  };
  Table result;
  result.begin.resize(slots_.size() + 1);
  for_each_position([&](std::uint32_t slot, std::uint32_t) { ++result.begin[slot + 1]; });
  std::partial_sum(result.begin.begin(), result.begin.end(), result.begin.begin());
  result.positions.resize(result.begin.back());
  std::vector<std::uint32_t> end(result.begin.begin(), result.begin.end() - 1);
  for_each_position([&](std::uint32_t slot, std::uint32_t at) { result.positions[end[slot]++] = at; });
  return result;
}

std::optional<std::size_t> AccessPositions::next_access(BufferId buffer, std::size_t at) const {
  return first(accesses_, buffer, at + 1);
}

std::optional<std::size_t> AccessPositions::first_write(BufferId buffer, std::size_t at) const {
  return first(writes_, buffer, at);
}

std::optional<std::size_t> AccessPositions::first(const Table& table, BufferId buffer, std::size_t at) const {
  const std::optional<std::uint32_t> slot = slots_.find(buffer);
  if (!slot) return std::nullopt;
  const auto begin = table.positions.begin() + table.begin[*slot];
  const auto end = table.positions.begin() + table.begin[*slot + 1];
  const auto next = std::lower_bound(begin, end, at);
  return next == end ? std::nullopt : std::optional<std::size_t>(*next);
}

}  // namespace popsr
