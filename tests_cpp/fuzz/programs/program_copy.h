// Copies of straight-line programs, changed on their way: other replicas, ops in a called graph.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <vector>

#include "support/program.h"

namespace popsr::test {

class ProgramCopy {
 public:
  /// Map of the copy's replicas to the original's; without it, groups stay as they are.
  struct Replicas {
    std::function<ReplicaGrouping(const ReplicaGrouping&)> grouping = {};
    std::function<std::vector<std::int64_t>(const std::vector<std::int64_t>&)> mapping =
        {};  ///< Mappings of permutes.
  };

  /// Copies variables, streams and remote buffers of the main graph into the empty program `to`.
  ProgramCopy(const Ir& from, Program& to, Replicas replicas);
  ProgramCopy(const Ir& from, Program& to) : ProgramCopy(from, to, Replicas()) {}

  /// Copies the ops at these positions of the main graph.
  void ops(std::size_t first, std::size_t end);
  /// Copies them into a graph and runs that: by a call, or where a condition is given by a conditional, both
  /// of whose branches are that graph. What they write in place is given by reference.
  OpId run_as_graph(std::size_t first, std::size_t end, TensorId condition = kNone);

  /// The copy of each op, by position in the original's main graph.
  const std::vector<OpId>& copies() const { return copies_; }

 private:
  OpId copy(const Op& op);
  TensorId operand(TensorId t);
  std::vector<TensorId> close_graph(std::size_t first, std::size_t end);

  const Ir& from_;
  Program& to_;
  Replicas replicas_;
  std::map<TensorId, TensorId> tensors_;  ///< Tensors of the main graph.
  std::map<TensorId, TensorId> inner_;    ///< Tensors of the graph being written.
  std::vector<TensorId> captured_;        ///< The original's tensor of each of its inputs.
  std::vector<OpId> copies_;
};

}  // namespace popsr::test
