// Memory that tensors share, through views and writes in place.
#pragma once

#include <vector>

#include "popsr/ir/view/view.h"

namespace popsr {

/// True if some element of `a` may be an element of `b`.
bool overlaps(const Ir& ir, TensorId a, TensorId b);
/// True if some element of region `a` may be an element of region `b`; both are regions of one root.
bool overlaps(const Region& a, const Region& b);
/// True if every element of `inner` is certainly an element of `outer`.
bool contains(const Ir& ir, TensorId outer, TensorId inner);
/// Tensors of the graph, one per storage, that may share an element of the tensor's memory; the tensor's
/// own storage first.
std::vector<TensorId> aliases(const Ir& ir, TensorId tensor);

}  // namespace popsr
