// The double product.
#include "popsr/kernels/level/product/matmul.h"

#include "popsr/kernels/level/product/matmul_any-inl.h"

namespace popsr::kernels {

void matmul_f64(const MatmulArgs& args, int part, int parts, void* scratch) {
  matmul<F64>(args, part, parts, scratch);
}

}  // namespace popsr::kernels
