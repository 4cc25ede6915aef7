// Tensors of a graph that share memory, for mode "popart": of a graph as a whole, whatever the time.
#pragma once

#include <unordered_map>
#include <vector>

#include "popsr/ir/ids.h"

namespace popsr {

class Ir;

class PopartAliases {
 public:
  explicit PopartAliases(const Ir& ir);

  /// The tensors that share memory with `t`, which is one of them.
  std::vector<TensorId> aliases(TensorId t) const;
  /// True if `super` has all memory of `sub`.
  bool contains(TensorId super, TensorId sub) const;

 private:
  const Ir& ir_;
  std::unordered_map<TensorId, std::vector<TensorId>> sharing_;  ///< By storage, where several have it.
};

}  // namespace popsr
