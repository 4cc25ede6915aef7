#include "popsr/analysis/popart/aliases.h"

#include "popsr/effects/memory.h"

namespace popsr {

PopartAliases::PopartAliases(const Ir& ir) : ir_(ir) {
  for (const TensorId t : ids<TensorId>(ir.num_tensors())) {
    const TensorId storage = ir.tensor(t).memory.storage;
    if (storage == t) continue;
    const auto [it, fresh] = sharing_.try_emplace(storage);
    if (fresh) it->second.push_back(storage);
    it->second.push_back(t);
  }
}

std::vector<TensorId> PopartAliases::aliases(TensorId t) const {
  std::vector<TensorId> all;
  for (const TensorId storage : popsr::aliases(ir_, t)) {
    const auto it = sharing_.find(storage);
    if (it == sharing_.end()) {
      all.push_back(storage);
    } else {
      all.insert(all.end(), it->second.begin(), it->second.end());
    }
  }
  return all;
}

bool PopartAliases::contains(TensorId super, TensorId sub) const {
  return ir_.tensor(super).memory.storage == ir_.tensor(sub).memory.storage ||
         popsr::contains(ir_, super, sub);
}

}  // namespace popsr
