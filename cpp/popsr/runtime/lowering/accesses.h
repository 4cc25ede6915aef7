// Reads and writes of buffers by lowered ops.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "popsr/runtime/lowering/lowered_program.h"

namespace popsr {

struct Accesses {
  int reads = 0;
  int writes = 0;
};

/// True if `has` holds for an op of the list or of its bodies.
template <class Has>
bool any_op(const std::vector<LoweredOp>& ops, const Has& has) {
  return std::ranges::any_of(ops, [&has](const LoweredOp& op) {
    bool found = has(op);
    for_each_body(op, [&](const std::vector<LoweredOp>& body) { found = found || any_op(body, has); });
    return found;
  });
}

/// Number of reads and writes of each buffer in the program's text.
IdVector<BufferId, Accesses> count_accesses(const LoweredProgram& program);

/// Calls visit(id, is_written) for each operand of the op and of its bodies.
template <class Visit>
void for_each_access(const LoweredOp& op, const Visit& visit) {
  for_each_operand(op, visit);
  for_each_body(op, [&visit](const std::vector<LoweredOp>& body) {
    for (const LoweredOp& inner : body) for_each_access(inner, visit);
  });
}

/// True if the buffer is an operand of the op or of a body of it.
bool touches(const LoweredOp& op, BufferId buffer);

/// Replaces each buffer id by now[id].
void replace_buffers(std::vector<LoweredOp>& ops, const IdVector<BufferId, BufferId>& now);

/// Removes the ops at positions that are dead.
void erase_dead(std::vector<LoweredOp>& ops, const std::vector<bool>& dead);

/// Memory for tables of the buffers that one list accesses after another, without passes over all buffers.
class AccessSlots {
 public:
  explicit AccessSlots(std::size_t buffers) : slots_(buffers) {}

  void start_list() {
    ++list_;
    count_ = 0;
  }
  /// Slot of the buffer in the current list; adds a buffer that has none.
  std::uint32_t add(BufferId id) {
    Slot& slot = slots_[id];
    if (slot.list != list_) slot = {list_, count_++};
    return slot.number;
  }
  std::optional<std::uint32_t> find(BufferId id) const {
    const bool is_known = id.index() < slots_.size() && slots_[id].list == list_;
    return is_known ? std::optional(slots_[id].number) : std::nullopt;
  }
  std::uint32_t size() const { return count_; }

 private:
  struct Slot {
    std::uint32_t list = 0, number = 0;
  };
  IdVector<BufferId, Slot> slots_;
  std::uint32_t list_ = 0, count_ = 0;
};

/// Positions of the ops of one list that access each buffer, themselves or in their bodies. Valid until the
/// slots are used for the next list.
class AccessPositions {
 public:
  AccessPositions(const std::vector<LoweredOp>& ops, AccessSlots& slots);

  /// First position after `at` whose op reads or writes the buffer.
  std::optional<std::size_t> next_access(BufferId buffer, std::size_t at) const;
  /// First position from `at` on whose op writes the buffer.
  std::optional<std::size_t> first_write(BufferId buffer, std::size_t at) const;

 private:
  /// Positions of each buffer, ascending, one buffer after another.
  struct Table {
    std::vector<std::uint32_t> begin = {};  ///< Begin of each slot's positions, and the end of the last.
    std::vector<std::uint32_t> positions = {};
  };

  Table table(const std::vector<LoweredOp>& ops, bool writes_only) const;
  std::optional<std::size_t> first(const Table& table, BufferId buffer, std::size_t at) const;

  const AccessSlots& slots_;
  Table accesses_, writes_;
};

}  // namespace popsr
