// The float product and the scratch of both.
#include "popsr/kernels/level/product/matmul.h"

#include "popsr/kernels/level/product/matmul_any-inl.h"

namespace popsr::kernels {

void matmul_f32(const MatmulArgs& args, int part, int parts, void* scratch) {
  matmul<F32>(args, part, parts, scratch);
}

std::size_t matmul_scratch(const MatmulArgs& args, int element_size) {
  return element_size == 4 ? scratch_bytes<F32>(args) : scratch_bytes<F64>(args);
}

}  // namespace popsr::kernels
