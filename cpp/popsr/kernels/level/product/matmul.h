// Matrix products of float and double; the contract is MatmulArgs in popsr/kernels/contract/kernel_table.h.
//
// Levels with FMA hardware (and generic builds) use fused multiply-adds. Level v2 has none: there a step of a
// chain is a rounded product and a rounded sum, so its bits differ from v3 and v4.
#pragma once

#include "popsr/kernels/contract/kernel_table.h"

namespace popsr::kernels {

void matmul_f32(const MatmulArgs& args, int part, int parts, void* scratch);
void matmul_f64(const MatmulArgs& args, int part, int parts, void* scratch);
/// Bytes of scratch that any part of the product needs; element_size is 4 or 8.
std::size_t matmul_scratch(const MatmulArgs& args, int element_size);

}  // namespace popsr::kernels
