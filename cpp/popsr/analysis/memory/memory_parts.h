// Parts of memory that views show, and the rest of a part after something else is written.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "popsr/effects/memory.h"

namespace popsr {

/// Tag of part numbers: a part of the memory of a tensor that views show, numbered per tensor.
struct PartTag {
  static constexpr std::uint32_t kDefault = 0;
};
using PartId = Id<PartTag>;
inline constexpr PartId kWholePart{};

/// True if views show the tensor's memory.
inline bool is_viewed(const Ir& ir, TensorId storage) {
  return ir.tensor(storage).memory.viewed != Viewed::kNo;
}

class MemoryParts {
 public:
  explicit MemoryParts(const Ir& ir) : ir_(ir) {}

  PartId number(const Region& region);
  Region region(TensorId root, PartId part) const;

  /// True if the tensor's memory may contain an element of the part.
  bool touches(TensorId root, PartId part, TensorId tensor) const;
  /// Rest of the part, in which the tensor certainly has no element; nullopt if empty.
  std::optional<PartId> rest(TensorId root, PartId part, TensorId tensor);

 private:
  const Ir& ir_;
  std::unordered_map<TensorId, std::vector<std::vector<Box>>> parts_;  ///< Boxes of part i + 1 of a root.
};

}  // namespace popsr
