// Findings of gradients in words, and what makes them right.
#pragma once

#include <string>

#include "popsr/analysis/gradients/gradient_flow.h"

namespace popsr {

/// "'w' is updated with a sum over ..."
std::string describe(const GradientFlow& flow, const GradientFinding& finding);
/// The collective that makes the gradients right, and where; "" when none of constant stride does.
std::string advice(const GradientFlow& flow, const GradientFinding& finding);

}  // namespace popsr
