// Finds and loads the kernel objects, one shared object per instruction-set level, beside the object that
// contains this code.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "popsr/kernels/contract/kernel_table.h"

namespace popsr::kernels {

/// Kernels that everything runs with: the best level of this CPU, or the one that the environment variable
/// POPSR_ISA names (read once, at the first call). Throws AttributeValueError if the CPU lacks that level.
const KernelTable& kernel_table();

/// Replaces the result of kernel_table() from now on, so that tests can compare levels within one process.
/// The table must outlive its use; a session keeps the one that it was made with.
void use_kernel_table(const KernelTable& table);

/// Kernels of one level; throws AttributeValueError if the level is unknown or the CPU lacks it.
const KernelTable& kernel_table(std::string_view level);

/// Levels that this CPU can run, worst first.
std::vector<std::string> available_levels();

}  // namespace popsr::kernels
