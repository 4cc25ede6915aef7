// The sum over groups of replicas that makes a share what it has to be.
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

/// And groups with one replica of each part of the share.
std::vector<ReplicaGrouping> candidate_groups(const Ir& ir, const GradientShare& share);

/// The first of them after whose sum, or mean, `holds` is true of the share.
std::optional<GroupSum> find_sum(const Ir& ir, const GradientShare& share, bool mean,
                                 const std::function<bool(const GradientShare&)>& holds);

}  // namespace popsr
