// Products of matrices of bytes; the contract is IntegerMatmulArgs in popsr/kernels/contract/kernel_table.h.
#pragma once

#include "popsr/kernels/contract/kernel_table.h"

namespace popsr::kernels {

void matmul_integer(const IntegerMatmulArgs& args, int part, int parts, void* scratch);
/// Bytes of scratch that any part of the product needs.
std::size_t matmul_integer_scratch(const IntegerMatmulArgs& args);

}  // namespace popsr::kernels
