// Element-wise ops that run slice by slice, one after another on each slice.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "popsr/exec/block_kernel.h"
#include "popsr/runtime/lowering/lowered_program.h"
#include "popsr/runtime/plan/layout.h"

namespace popsr {

class Executor;
class PlanBuilder;
struct Instruction;

/// One op on slices. Operands move by so many bytes from one slice to the next; those of one element by none.
struct SlicedPart {
  BlockKernel full = {}, tail = {};  ///< For slices of the common size, and for the last one.
  std::vector<std::ptrdiff_t> in_step = {}, out_step = {};
  std::vector<std::size_t> single = {};  ///< Per output: its bytes if it has one element; else 0.
};

struct Sliced {
  std::vector<Instruction> parts;  ///< KernelRuns of one block.
  std::vector<SlicedPart> slices = {};
  std::int64_t elements = 0, step = 1;  ///< Of the operands, and of a slice.
  std::vector<Slab> single = {};  ///< Of each thread: outputs of one element, which every slice computes.
};

void build_sliced(PlanBuilder& builder, const lowered::Sliced& sliced, Instruction& instruction);
void prepare(Sliced& work, const Instruction& instruction, Executor& executor);
void execute(Sliced& work, const Instruction& instruction, Executor& executor);
std::string describe(const Sliced& work, const Instruction& instruction, const Ir& ir);

}  // namespace popsr
