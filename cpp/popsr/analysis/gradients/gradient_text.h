// Findings of gradients in words.
#pragma once

#include <optional>
#include <string>

#include "popsr/analysis/gradients/gradient_flow.h"

namespace popsr {

/// "'w' is updated with a sum over ..."
std::string describe(const GradientFlow& flow, const GradientFinding& finding);

/// Of two contributions at a fork the one that is a partial sum, where the other one is whole.
struct Contribution {
  TensorId tensor;
  GradientShare share, other;
};
std::optional<Contribution> partial_contribution(const GradientFlow& flow, const GradientFinding& finding);

const std::string& name_of(const GradientFlow& flow, TensorId tensor);
std::string place(const GradientFlow& flow, LocationId location);
/// Of the op that made the tensor: in gradient graphs, of its forward op.
std::string place_of(const GradientFlow& flow, TensorId tensor);
/// Replicas that share the forward value.
PartitionId shared_by(const GradientFlow& flow, const GradientFinding& finding);

}  // namespace popsr
