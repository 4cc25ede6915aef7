// Texts about findings of gradients.
#pragma once

#include <optional>
#include <string>

#include "popsr/analysis/gradients/gradient_flow.h"

namespace popsr {

/// Text such as "'w' is updated with a sum over ...".
std::string describe(const GradientFlow& flow, const GradientFinding& finding);

/// Contribution at a fork that is a partial sum where the other contribution is whole.
struct Contribution {
  TensorId tensor;
  GradientShare share, other;
};
std::optional<Contribution> partial_contribution(const GradientFlow& flow, const GradientFinding& finding);

const std::string& name_of(const GradientFlow& flow, TensorId tensor);
std::string place(const GradientFlow& flow, LocationId location);
/// Location of the op that made the tensor: in gradient graphs, of its forward op.
std::string place_of(const GradientFlow& flow, TensorId tensor);
/// Partition of replicas that share the forward value.
PartitionId shared_by(const GradientFlow& flow, const GradientFinding& finding);

}  // namespace popsr
