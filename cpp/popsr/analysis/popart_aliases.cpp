#include "popsr/analysis/popart_aliases.h"

namespace popsr {

PopartAliases::PopartAliases(const Ir& ir) : ir_(ir) {
  for (TensorId t = 0; t < ir.num_tensors(); ++t) {
    const TensorId storage = ir.tensor(t).storage;
    if (storage == t) continue;
    const auto [it, fresh] = sharing_.try_emplace(storage);
    if (fresh) it->second.push_back(storage);
    it->second.push_back(t);
  }
}

std::vector<TensorId> PopartAliases::aliases(TensorId t) const {
  const auto it = sharing_.find(ir_.tensor(t).storage);
  return it == sharing_.end() ? std::vector<TensorId>{} : it->second;
}

bool PopartAliases::contains(TensorId super, TensorId sub) const {
  // A tensor is the whole of its allocation.
  return ir_.tensor(super).storage == ir_.tensor(sub).storage;
}

}  // namespace popsr
