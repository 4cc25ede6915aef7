// Search for a sum over groups of replicas after which a share has a required property.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "popsr/analysis/gradients/gradient_share.h"
#include "popsr/ir/ir.h"

namespace popsr {

/// A sum or mean over groups.
struct GroupSum {
  ReplicaGrouping group;
  bool mean = false;
};

/// Groups of constant stride, the smallest first, then the groups of the program's variables and collectives.
std::vector<ReplicaGrouping> candidate_groups(const Ir& ir);

/// Groups of the overload above, and groups with one replica of each part of the share.
std::vector<ReplicaGrouping> candidate_groups(const Ir& ir, const GradientShare& share);

/// First candidate group after whose sum, or mean, `holds` is true of the share.
std::optional<GroupSum> find_sum(const Ir& ir, const GradientShare& share, bool mean,
                                 const std::function<bool(const GradientShare&)>& holds);

}  // namespace popsr
