#include "popsr/analysis/gradients/share_traits.h"

namespace popsr {

ShareTraits::ShareTraits(const OpDef& def)
    : remote(def.program.remote != Remote::kNone),
      is_meet(def.replicas.partition == meet_of_inputs && def.has_rule()) {
  const ReplicaAspect& replicas = def.replicas;
  if (def.memory.view != nullptr) {
    kind = Kind::kView;
  } else if (replicas.collective != Collective::kNone || replicas.expects_whole_gradient) {
    kind = Kind::kCollective;
  } else if (replicas.peers != Peers::kNone) {
    kind = Kind::kExchange;
  }
  const KernelAspect& kernel = def.kernel;
  const bool computes =
      kernel.elementwise || kernel.flops != nullptr || def.numerics.rounding != Rounding::kNone;
  linear = def.sums() || !computes;
  for (std::size_t i = 0; i < 32 && !def.inputs.empty(); ++i)
    influences |= std::uint32_t{def.influences(i)} << i;
}

}  // namespace popsr
