// Properties of a definition that decide what its ops do to shares.
#pragma once

#include <cstddef>
#include <cstdint>

#include "popsr/analysis/gradients/step_memo.h"
#include "popsr/ir/op_def.h"

namespace popsr {

struct ShareTraits {
  enum class Kind : std::uint8_t { kView, kCollective, kExchange, kLocal };

  Kind kind = Kind::kLocal;
  bool remote = false;           ///< Ops reach more than their own operands.
  bool is_meet = false;          ///< An output is equal where the inputs are.
  bool linear = false;           ///< Outputs are sums of inputs, in some order and shape.
  std::uint32_t influences = 0;  ///< A bit for each input, the highest one for all others.

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
