// Sums over replicas that gradients need to be whole: equal on all replicas that share the forward value, and
// the derivative by it. Autodiff with replicas="sum".
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

/// A sum over groups. Where groups add in different orders, which rounds differently, the groups of
/// `broadcast` take the sum of their first member.
struct PartSum {
  ReplicaGrouping group;
  std::optional<ReplicaGrouping> broadcast = {};
};

class WholeGradients {
 public:
  /// Facts of the program as it is, in which variables keep what is declared. GraphError unless `graph` is
  /// called.
  WholeGradients(const Ir& ir, GraphId graph);

  /// GraphError for an exchange between replicas that has no transpose on whole gradients.
  void check(const Op& op) const;
  /// The share of the op's contributions to the gradient of an input; of a call, with that graph's input.
  GradientShare contribution(const Op& op, TensorId called_input) const;
  /// The share of a gradient that is whole.
  GradientShare whole(TensorId forward) const { return starting_share(partition(forward), 0); }
  /// The sum of contributions of this share, one part from each replica that has another; nullopt where they
  /// are whole. GraphError when no groups make the gradient whole.
  std::optional<PartSum> sum_of(const GradientShare& share, TensorId forward) const;

 private:
  /// top() for tensors that were made since.
  PartitionId partition(TensorId tensor) const {
    return tensor.index() < partitions_.size() ? partitions_[tensor] : PartitionId();
  }

  bool adds_in_one_order(const ReplicaGrouping& group, PartitionId parts, PartitionId whole) const;

  const Ir& ir_;
  IdVector<TensorId, PartitionId> partitions_;  ///< Of what autodiff found.
};

}  // namespace popsr
