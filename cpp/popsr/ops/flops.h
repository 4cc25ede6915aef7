// FLOP counts of ops, as popsr.addons.performance_utils states them.
#pragma once

#include <vector>

#include "popsr/ir/op_def.h"

namespace popsr {

/// Number of floating point operations of an op on one replica; none for copies, comparisons and
/// collectives, and for ops that run graphs, whose ops are counted by themselves.
std::vector<FlopTerm> flops_of(const Ir& ir, const Op& op);

/// Count for KernelAspect::flops: `each` for each element of output 0, or of input 0.
template <int each>
std::vector<FlopTerm> flops_per_output(const Ir& ir, const Op& op) {
  return {{num_elements(ir.tensor(op.outputs[0]).type.shape), each}};
}
template <int each>
std::vector<FlopTerm> flops_per_input(const Ir& ir, const Op& op) {
  return {{num_elements(ir.tensor(op.inputs[0]).type.shape), each}};
}

}  // namespace popsr
