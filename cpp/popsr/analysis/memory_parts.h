// Parts of memory that views see: what a view shows, and what is left of that when something else is written.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "popsr/effects/memory.h"

namespace popsr {

/// A part of the memory of a tensor that views see. Numbered for each such tensor.
struct PartTag {
  static constexpr std::uint32_t kDefault = 0;
};
using PartId = Id<PartTag>;
inline constexpr PartId kWholePart{};

/// True if views see the tensor's memory.
inline bool is_viewed(const Ir& ir, TensorId storage) {
  return ir.tensor(storage).memory.viewed != Viewed::kNo;
}

class MemoryParts {
 public:
  explicit MemoryParts(const Ir& ir) : ir_(ir) {}

  PartId number(const Region& region);
  Region region(TensorId root, PartId part) const;

  /// May the tensor's memory have an element of the part?
  bool touches(TensorId root, PartId part, TensorId tensor) const;
  /// The rest of the part, where the tensor surely has no element; nullopt if empty.
  std::optional<PartId> rest(TensorId root, PartId part, TensorId tensor);

 private:
  const Ir& ir_;
  std::unordered_map<TensorId, std::vector<std::vector<Box>>> parts_;  ///< Part i+1 of a root.
};

}  // namespace popsr
