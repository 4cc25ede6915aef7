// Reductions of columns, see ColumnKernels.
#pragma once

#include "popsr/kernels/contract/kernel_table.h"

namespace popsr::kernels {

extern const ColumnKernels kColumnsF32;
extern const ColumnKernels kColumnsF64;
extern const ColumnKernels kColumnsBf16;

}  // namespace popsr::kernels
