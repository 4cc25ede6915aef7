// Rules that pad convolutions and pools.
#pragma once

#include <cstdint>

#include "popsr/ir/attribute.h"

namespace popsr {

/// Padding rule; rules other than kNotSet replace a padding that is given.
enum class PadRule : std::uint8_t { kNotSet, kSameUpper, kSameLower, kValid };

inline constexpr Choice<PadRule> kPadRules[] = {{"not_set", PadRule::kNotSet},
                                                {"same_upper", PadRule::kSameUpper},
                                                {"same_lower", PadRule::kSameLower},
                                                {"valid", PadRule::kValid}};

inline bool is_same(PadRule rule) { return rule == PadRule::kSameUpper || rule == PadRule::kSameLower; }

}  // namespace popsr
