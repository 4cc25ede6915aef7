// The float product and the scratch of both.
#include "popsr/kernels/level/matmul.h"

#include "popsr/kernels/level/matmul_fold.h"

namespace popsr::kernels {

void matmul_f32(const MatmulArgs& args, int part, int parts, void* scratch) {
  matmul<F32>(args, part, parts, scratch);
}

std::size_t matmul_scratch(const MatmulArgs& args, int element_size) {
  return scratch_bytes(element_size == 4 ? make_plan<F32>(args) : make_plan<F64>(args));
}

}  // namespace popsr::kernels
