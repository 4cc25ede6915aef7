// Memory that tensors share, through views and writes in place.
#pragma once

#include <vector>

#include "popsr/ir/view/view.h"

namespace popsr {

/// True if some element of `a` may be one of `b`.
bool overlaps(const Ir& ir, TensorId a, TensorId b);
/// The same of regions on one root.
bool overlaps(const Region& a, const Region& b);
/// True if every element of `inner` is surely one of `outer`.
bool contains(const Ir& ir, TensorId outer, TensorId inner);
/// Tensors of the graph, one a storage, that may hold an element of the tensor's memory; itself first.
std::vector<TensorId> aliases(const Ir& ir, TensorId tensor);

}  // namespace popsr
