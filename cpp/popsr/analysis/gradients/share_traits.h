// Properties of a definition that decide how its ops change shares.
#pragma once

#include <cstddef>
#include <cstdint>

#include "popsr/analysis/gradients/step_memo.h"
#include "popsr/ir/op_def.h"

namespace popsr {

struct ShareTraits {
  enum class Kind : std::uint8_t { kView, kCollective, kExchange, kLocal };

  Kind kind = Kind::kLocal;
  bool remote = false;   ///< True if ops reach more than their own operands.
  bool is_meet = false;  ///< True if an output is equal where all inputs are.
  bool linear = false;   ///< True if outputs are sums of inputs, in some order and shape.
  /// Bit per input, the highest one for all further inputs: set if it influences the outputs.
  std::uint32_t influences = 0;

  ShareTraits() = default;
  explicit ShareTraits(const OpDef& def);
  bool influenced_by(std::size_t input) const { return (influences >> (input < 31 ? input : 31) & 1U) != 0; }
};

/// Key of a definition's traits.
struct DefKey {
  const OpDef* def = nullptr;
  bool operator==(const DefKey&) const = default;
  std::uint64_t hash() const { return reinterpret_cast<std::uintptr_t>(def) * kHashFactor; }
};

}  // namespace popsr
