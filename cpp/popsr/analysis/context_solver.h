// Transfer of one graph in one context; see partition_analysis.h for what is claimed.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "popsr/analysis/memory_facts.h"
#include "popsr/analysis/partition_analysis.h"
#include "popsr/ir/calls/called_graphs.h"

namespace popsr {

class ContextSolver {
 public:
  ContextSolver(PartitionAnalysis& analysis, GraphId graph, const std::vector<PartitionId>& inputs,
                const std::vector<PartitionId>& remote, NarrowingId narrowing);
  Context run();

 private:
  void step(const Op& op);
  /// Facts of the outputs of an op that runs no graphs into outputs_; its seed partition, if it has one.
  std::optional<PartitionId> transfer_local(const Op& op);
  std::vector<PartitionId> transfer_parts(const Op& op);
  OpFacts transfer(const Op& op);
  OpFacts transfer_call(const Op& op, const std::vector<PartitionId>& in);
  OpFacts transfer_repeat(const Op& op, std::vector<PartitionId> in);
  OpFacts transfer_conditional(const Op& op, const std::vector<PartitionId>& in);
  /// Facts of the places that a branch changes: allocations and remote entries, and positions of streams.
  struct Changes {
    std::map<TensorId, PartitionId> tensors;
    std::map<StreamId, PartitionId> positions;
  };
  ContextId solve_branch(const CalledGraph& branch, const std::vector<PartitionId>& in,
                         NarrowingId narrowing);
  Changes changes_of(const Op& op, const CalledGraph& branch, const Context& callee);
  void write_changes(const Changes& taken, const Changes& other, OpFacts& facts);
  std::vector<PartitionId> input_facts(const Op& op);
  void read_inputs(const Op& op, std::vector<PartitionId>& facts);
  void write(const std::vector<TensorId>& tensors, const std::vector<PartitionId>& facts);
  void write_modified(const Op& op, const std::vector<PartitionId>& final_inputs, OpFacts& facts);
  PartitionId read(TensorId tensor);
  void write(TensorId tensor, PartitionId fact);
  PartitionId& remote_fact(TensorId entry);
  PartitionId& position(StreamId stream);
  /// Facts of the entries and stream positions that a called graph reaches; and their facts after it ran.
  std::vector<PartitionId> remote_facts(GraphId graph);
  void set_remote_facts(const Context& callee);

  PartitionAnalysis& analysis_;
  const Ir& ir_;
  PartitionTable& table_;
  bool keeps_;  ///< Some memory is assumed to keep its fact.
  Context context_;
  const std::vector<TensorId>& entries_;  ///< Remote memory that the graph reaches, ascending.
  const std::vector<StreamId>& streams_;  ///< Whose positions may part and that the graph loads, ascending.
  std::vector<PartitionId> remote_;       ///< Current facts, parallel to entries_, then to streams_.
  MemoryFacts memory_;                    ///< Current facts of the graph's own memory.
  std::vector<PartitionId> inputs_, outputs_;  ///< Of the op at hand.
};

}  // namespace popsr
