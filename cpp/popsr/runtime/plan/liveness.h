// Liveness of buffers: the steps of a lowered program between which each of them holds a value.
#pragma once

#include <cstddef>
#include <limits>
#include <vector>

#include "popsr/replica/local_blocks.h"
#include "popsr/runtime/lowering/lowered_program.h"

namespace popsr {

/// First and last step, numbered in program text, between which a buffer holds a value.
struct Lifetime {
  std::size_t first = std::numeric_limits<std::size_t>::max();
  std::size_t last = 0;
  bool used() const { return first <= last; }
};

/// Lifetimes of all buffers. A step is an instruction, including each one in a body, or the end of a loop.
/// Merged and sliced ops are one step.
class Liveness {
 public:
  explicit Liveness(const LoweredProgram& program) : lifetimes(program.buffers.size()) { walk(program.ops); }

  IdVector<BufferId, Lifetime> lifetimes;
  /// Op of each step, in program text; a loop appears once more at its end.
  std::vector<const LoweredOp*> steps;

 private:
  std::size_t begin_step(const LoweredOp& op);
  void touch(BufferId id);
  void touch_operands(const LoweredOp& op);
  void walk(const std::vector<LoweredOp>& ops);
  void extend_over_loop(const std::vector<LoweredOp>& body, std::size_t begin, std::size_t end);
};

/// True for buffers that are placed in the shared arena by their lifetimes, if they are used at all.
bool is_in_arena(const Buffer& buffer);

/// Bytes of all blocks of a buffer on a rank, including received ones.
std::size_t slab_bytes(const LocalBlocks& blocks, const Buffer& buffer);

/// slab_bytes() rounded up to the alignment of the arena.
std::size_t arena_bytes(const LocalBlocks& blocks, const Buffer& buffer);

}  // namespace popsr
