// The rules that pad convolutions and pools.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "popsr/base/error.h"
#include "popsr/ir/op_def.h"

namespace popsr {

/// The others than kNotSet take the place of a padding that is given.
enum class PadRule : std::uint8_t { kNotSet, kSameUpper, kSameLower, kValid };

inline bool is_same(PadRule rule) { return rule == PadRule::kSameUpper || rule == PadRule::kSameLower; }

/// The rule in that attribute; AttributeValueError for another name.
inline PadRule pad_rule_of(const Op& op, std::string_view attribute) {
  const auto& name = op.attr<std::string>(attribute);
  if (name == "not_set") return PadRule::kNotSet;
  if (name == "same_upper") return PadRule::kSameUpper;
  if (name == "same_lower") return PadRule::kSameLower;
  if (name == "valid") return PadRule::kValid;
  raise<AttributeValueError>("{}: unknown {}, got '{}', expected not_set, same_upper, same_lower or valid",
                             op.def->name, attribute, name);
}

}  // namespace popsr
