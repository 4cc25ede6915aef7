// The double product.
#include "popsr/kernels/level/matmul.h"

#include "popsr/kernels/level/matmul_any.h"

namespace popsr::kernels {

void matmul_f64(const MatmulArgs& args, int part, int parts, void* scratch) {
  matmul<F64>(args, part, parts, scratch);
}

}  // namespace popsr::kernels
