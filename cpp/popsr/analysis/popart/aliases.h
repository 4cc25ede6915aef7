// Tensors of a graph that share memory, for mode "popart": for the graph as a whole, at any time.
#pragma once

#include <unordered_map>
#include <vector>

#include "popsr/ir/ids.h"

namespace popsr {

class Ir;

class PopartAliases {
 public:
  explicit PopartAliases(const Ir& ir);

  /// Tensors that share memory with `t`, including `t`.
  std::vector<TensorId> aliases(TensorId t) const;
  /// True if the memory of `super` contains all memory of `sub`.
  bool contains(TensorId super, TensorId sub) const;

 private:
  const Ir& ir_;
  /// Tensors by storage, for storages that several tensors share.
  std::unordered_map<TensorId, std::vector<TensorId>> sharing_;
};

}  // namespace popsr
