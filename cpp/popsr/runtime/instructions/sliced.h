// Element-wise ops that run slice by slice, one after another on each slice.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "popsr/exec/block_kernel.h"
#include "popsr/runtime/instructions/thread_room.h"
#include "popsr/runtime/lowering/lowered_program.h"

namespace popsr {

class Executor;
class PlanBuilder;
struct Instruction;

/// The places of the slices of an operand.
struct SlicedOperand {
  std::ptrdiff_t step = 0;  ///< Bytes from one slice to the next; 0 for one element, which all slices read.
  std::optional<std::size_t> scratch = {};  ///< In the scratch of a thread, from there on.
  std::size_t single = 0;  ///< Bytes of an output of one element: every slice computes it into scratch.
};

/// One op on slices.
struct SlicedPart {
  BlockKernel full = {}, tail = {};  ///< For slices of the common size, and for the last one.
  std::vector<SlicedOperand> in = {}, out = {};
};

struct Sliced {
  std::vector<Instruction> parts;  ///< KernelRuns of one block.
  std::vector<SlicedPart> slices = {};
  std::int64_t elements = 0, step = 1;    ///< Of the operands, and of a slice.
  std::shared_ptr<ThreadRoom> room = {};  ///< Of temporaries of slices.
};

void build_sliced(PlanBuilder& builder, const lowered::Sliced& sliced, Instruction& instruction);
void prepare(Sliced& work, const Instruction& instruction, Executor& executor);
void execute(Sliced& work, const Instruction& instruction, Executor& executor);
std::string describe(const Sliced& work, const Instruction& instruction, const Ir& ir);

}  // namespace popsr
