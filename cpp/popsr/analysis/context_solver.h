// Transfer of one graph in one context; see partition_analysis.h for what is claimed.
#pragma once

#include <vector>

#include "popsr/analysis/partition_analysis.h"

namespace popsr {

class ContextSolver {
 public:
  ContextSolver(PartitionAnalysis& analysis, GraphId graph, const std::vector<PartitionId>& inputs,
                const std::vector<PartitionId>& remote, PartitionId exec);
  Context run();

 private:
  OpFacts transfer(const Op& op);
  OpFacts transfer_local(const Op& op, const std::vector<PartitionId>& in);
  OpFacts transfer_parts(const Op& op, const std::vector<PartitionId>& in);
  OpFacts transfer_call(const Op& op, const std::vector<PartitionId>& in);
  OpFacts transfer_repeat(const Op& op, std::vector<PartitionId> in);
  std::vector<PartitionId> input_facts(const Op& op);
  void write_modified(const Op& op, const std::vector<PartitionId>& final_inputs, OpFacts& facts);
  PartitionId& fact(TensorId tensor);
  PartitionId& remote_fact(TensorId entry);
  /// Facts of the entries that a called graph reaches; and their facts after it ran.
  std::vector<PartitionId> remote_facts(GraphId graph);
  void set_remote_facts(const Context& callee);

  PartitionAnalysis& analysis_;
  const Ir& ir_;
  PartitionTable& table_;
  Context context_;
  const std::vector<TensorId>& entries_;  ///< Remote memory that the graph reaches, ascending.
  std::vector<PartitionId> remote_;       ///< Current facts, parallel to entries_.
  std::vector<PartitionId> state_;  ///< Current fact of each allocation, by Tensor::index of its storage.
};

}  // namespace popsr
