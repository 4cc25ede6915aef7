// Liveness of buffers: the steps of a lowered program between which each of them holds a value.
#pragma once

#include <cstddef>
#include <limits>
#include <vector>

#include "popsr/replica/local_blocks.h"
#include "popsr/runtime/lowering/lowered_program.h"

namespace popsr {

/// Steps, numbered in program text, between which a buffer holds a value.
struct Lifetime {
  std::size_t first = std::numeric_limits<std::size_t>::max();
  std::size_t last = 0;
  bool used() const { return first <= last; }
};

/// A step is an instruction, also each one in a body, or the end of a loop. Merged and sliced ops are one.
class Liveness {
 public:
  explicit Liveness(const LoweredProgram& program) : lifetimes(program.buffers.size()) { walk(program.ops); }

  IdVector<BufferId, Lifetime> lifetimes;
  std::vector<const LoweredOp*> steps;  ///< In program text; a loop stands at its end once more.

 private:
  std::size_t begin_step(const LoweredOp& op);
  void touch(BufferId id);
  void touch_operands(const LoweredOp& op);
  void walk(const std::vector<LoweredOp>& ops);
  void extend_over_loop(const std::vector<LoweredOp>& body, std::size_t begin, std::size_t end);
};

/// True for buffers that share one arena, by their lifetimes, if they are used at all.
bool is_in_arena(const Buffer& buffer);

/// Bytes of all blocks of a buffer that a rank has, with those it receives.
std::size_t slab_bytes(const LocalBlocks& blocks, const Buffer& buffer);

/// The same, rounded up to what the arena gives to it.
std::size_t arena_bytes(const LocalBlocks& blocks, const Buffer& buffer);

}  // namespace popsr
