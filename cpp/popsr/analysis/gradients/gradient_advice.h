// Suggestion of the collective that makes gradients right, with its groups and its place. A sum that makes
// replicas equal need not be right: each candidate is tried on the shares.
#pragma once

#include <string>

#include "popsr/analysis/gradients/gradient_flow.h"

namespace popsr {

/// Text of the suggestion; "" if no single collective makes the gradients right.
std::string advice(const GradientFlow& flow, const GradientFinding& finding);

}  // namespace popsr
