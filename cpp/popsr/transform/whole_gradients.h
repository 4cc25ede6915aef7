// Sums over replicas that make gradients whole: equal on all replicas that share the forward value, and the
// derivative with respect to it. Used by autodiff with replicas="sum".
//
// Let the gradients of an op's outputs be whole. The contribution of the op to the gradient of an input is a
// partial sum where replicas that share the input do not share the outputs: a weight and the samples of each
// replica, an activation and the parts of a split weight. Such contributions are added over groups that take
// one replica of each kind, after contributions of the same kind were added.
#pragma once

#include <optional>
#include <vector>

#include "popsr/analysis/gradients/gradient_share.h"
#include "popsr/ir/op.h"

namespace popsr {

/// A sum over groups. If groups add in different orders, which rounds differently, the groups of
/// `broadcast` receive the sum of their first member.
struct PartSum {
  ReplicaGrouping group;
  std::optional<ReplicaGrouping> broadcast = {};
};

class WholeGradients {
 public:
  /// Analyses the program as it is; variables keep their declared groups equal. Throws GraphError unless
  /// `graph` is called.
  WholeGradients(const Ir& ir, GraphId graph);

  /// Throws GraphError for an exchange between replicas that has no transpose on whole gradients.
  void check(const Op& op) const;
  /// Share of the op's contributions to the gradient of an input; for a call, `called_input` is that
  /// graph's input.
  GradientShare contribution(const Op& op, TensorId called_input) const;
  /// Share of a whole gradient.
  GradientShare whole(TensorId forward) const { return starting_share(partition(forward), 0); }
  /// Sum of contributions of this share, over one replica of each part; nullopt if they are whole. Throws
  /// GraphError if no groups make the gradient whole.
  std::optional<PartSum> sum_of(const GradientShare& share, TensorId forward) const;

 private:
  /// Fact of a tensor; top() for tensors that were made since the analysis.
  PartitionId partition(TensorId tensor) const {
    return tensor.index() < partitions_.size() ? partitions_[tensor] : PartitionId();
  }

  bool adds_in_one_order(const ReplicaGrouping& group, PartitionId parts, PartitionId whole) const;

  const Ir& ir_;
  IdVector<TensorId, PartitionId> partitions_;  ///< Facts of the tensors that existed at the analysis.
};

}  // namespace popsr
