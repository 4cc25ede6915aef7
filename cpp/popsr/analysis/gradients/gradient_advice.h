// The collective that makes gradients right, with its groups and its place. A sum that makes replicas equal
// need not be right: each is tried on the shares.
#pragma once

#include <string>

#include "popsr/analysis/gradients/gradient_flow.h"

namespace popsr {

/// "" when no single collective does.
std::string advice(const GradientFlow& flow, const GradientFinding& finding);

}  // namespace popsr
