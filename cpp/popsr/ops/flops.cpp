#include "popsr/ops/flops.h"

#include "popsr/kernels/contract/elementwise.h"

namespace popsr {

std::vector<FlopTerm> flops_of(const Ir& ir, const Op& op) {
  const KernelAspect& kernel = op.def->kernel;
  if (kernel.flops != nullptr) return kernel.flops(ir, op);
  if (!kernel.elementwise) return {};
  const std::int64_t each = kernels::row_of(*kernel.elementwise).flops;
  return {{num_elements(ir.tensor(op.outputs[0]).type.shape), each}};
}

}  // namespace popsr
