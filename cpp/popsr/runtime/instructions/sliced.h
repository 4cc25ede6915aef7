// Instruction for element-wise ops that run slice by slice, one after another on each slice.
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

/// Memory of the slices of an operand.
struct SlicedOperand {
  /// Bytes from one slice to the next; 0 for an operand of one element, which all slices read.
  std::ptrdiff_t step = 0;
  /// Offset in the scratch of a thread, if the operand lives there.
  std::optional<std::size_t> scratch = {};
  /// Bytes of an output of one element, which every slice computes into scratch; otherwise 0.
  std::size_t single = 0;
};

/// One op on slices.
struct SlicedPart {
  BlockKernel full = {}, tail = {};  ///< Kernels for slices of the common size, and for the last slice.
  std::vector<SlicedOperand> in = {}, out = {};
};

struct Sliced {
  std::vector<Instruction> parts;  ///< KernelRun instructions of one block.
  std::vector<SlicedPart> slices = {};
  std::int64_t elements = 0, step = 1;    ///< Elements of the operands, and of a slice.
  std::shared_ptr<ThreadRoom> room = {};  ///< Memory for temporaries of slices.
};

void build_sliced(PlanBuilder& builder, const lowered::Sliced& sliced, Instruction& instruction);
void prepare(Sliced& work, const Instruction& instruction, Executor& executor);
void execute(Sliced& work, const Instruction& instruction, Executor& executor);
std::string describe(const Sliced& work, const Instruction& instruction, const Ir& ir);

}  // namespace popsr
