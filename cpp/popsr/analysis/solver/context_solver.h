// Transfer of one graph in one context; see partition_analysis.h for the claim.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "popsr/analysis/memory/memory_facts.h"
#include "popsr/analysis/partition_analysis.h"
#include "popsr/ir/calls/called_graphs.h"

namespace popsr {

class ContextSolver {
 public:
  ContextSolver(PartitionAnalysis& analysis, GraphId graph, const ContextEntry& entry, NarrowingId narrowing);
  /// Resumes from `before`, the context of a graph that only gained ops since.
  ContextSolver(PartitionAnalysis& analysis, const Context& before);
  Context run();
  /// Indices of the inputs (for the main graph, of the state) whose memory the new ops of a resumed graph
  /// write, ascending.
  const std::vector<std::uint32_t>& rewritten() const { return rewritten_; }

 private:
  PartitionId last(TensorId tensor, std::uint32_t index, PiecesByInput& parts);
  void find_ends(const Graph& graph);
  void step(const Op& op);
  void step_meet(const FlatSchedule& schedule, std::size_t at);
  /// Computes the facts of the outputs of an op that runs no graphs into outputs_; returns its seed
  /// partition, if it has one.
  std::optional<PartitionId> transfer_local(const Op& op);
  std::vector<PartitionId> transfer_parts(const Op& op);
  OpFacts transfer(const Op& op);
  OpFacts transfer_call(const Op& op);
  OpFacts transfer_repeat(const Op& op);
  OpFacts transfer_conditional(const Op& op);
  /// Contexts of a loop's body: one that holds in all iterations, and the one of the last iteration.
  struct Iterations {
    ContextId all = {}, last = {};
  };
  /// Follows the facts from iteration to iteration; nullopt if that takes too many iterations.
  std::optional<Iterations> follow(const Op& op, GraphId body, ContextEntry& entry);
  /// Greatest fixpoint of the facts that one iteration passes to the next.
  ContextId fixpoint(const Op& op, GraphId body, ContextEntry entry);
  ContextEntry next_entry(const Op& op, const ContextEntry& entry, const Context& body);
  void meet_with_next(ContextEntry& entry, const ContextEntry& next, GraphId graph, bool& changed) const;
  /// Facts of the places that a branch changes: allocations and remote entries, and positions of streams.
  struct Changes {
    std::map<TensorId, PartitionId> tensors;
    std::map<TensorId, Pieces> pieces;  ///< Facts by part, for some of `tensors`.
    std::map<StreamId, PartitionId> positions;
  };
  ContextId solve_branch(const Op& op, const CalledGraph& branch, bool holds, NarrowingId narrowing);
  Changes changes_of(const Op& op, const CalledGraph& branch, const Context& callee);
  void write_changes(const Changes& taken, const Changes& other, OpFacts& facts);
  void write_only_changes(const Changes& taken, OpFacts& facts);
  bool is_renamed(TensorId storage, const Changes& changes) const;
  /// Coarsens the facts of places in which both branches leave equal values: uses the facts that one branch
  /// leaves if all replicas take it. `before`: facts of remote memory and positions before the conditional.
  void write_equal_results(const Op& op, const CalledGraph& branch, const std::vector<PartitionId>& before,
                           OpFacts& facts);
  bool may_coarsen(const Op& op, const EqualResults& alike, const OpFacts& facts) const;
  bool coarsen(PartitionId& fact, PartitionId to);
  void merge_outputs(const Op& op, const ContextEnd& taken, const ContextEnd& other, OpFacts& facts);
  void merge_pieces(TensorId storage, const Changes& taken, const Changes& other, OpFacts& facts);
  /// Facts that a called graph starts with.
  ContextEntry entry_of(const Op& op, const CalledGraph& called);
  /// Value of a condition that is known to be the same on all replicas that run the graph, because of a
  /// conditional around it.
  std::optional<bool> truth(TensorId condition) const;
  void read_inputs(const Op& op, std::vector<PartitionId>& facts);
  void write(const std::vector<TensorId>& tensors, const std::vector<PartitionId>& facts);
  /// Writes the facts of inputs that the op's graph modifies; `last` has the facts of its inputs when that
  /// graph ends.
  void write_modified(const Op& op, const TensorFacts& last, OpFacts& facts);
  /// Sets the facts of the op's outputs to the ones its graph ends with, without writing them to memory.
  static void copy_outputs(const Op& op, const ContextEnd& end, OpFacts& facts);
  bool has_fault(SolverFault fault) const { return analysis_.assumptions().fault == fault; }
  PartitionId read(TensorId tensor);
  void write(TensorId tensor, PartitionId fact);
  PartitionId& remote_fact(TensorId entry);
  PartitionId& position(StreamId stream);
  /// Facts of the entries and stream positions that a called graph reaches; set_remote_facts() sets them
  /// after it ran.
  std::vector<PartitionId> remote_facts(GraphId graph);
  void set_remote_facts(const Context& callee);

  PartitionAnalysis& analysis_;
  const Ir& ir_;
  PartitionTable& table_;
  bool has_pinned_facts_;  ///< True if some memory is assumed to have a pinned fact.
  Context context_;
  const std::vector<TensorId>& entries_;  ///< Remote entries that the graph reaches, ascending.
  /// Streams whose positions may differ between replicas and that the graph loads, ascending.
  const std::vector<StreamId>& streams_;
  std::vector<PartitionId> remote_;            ///< Current facts, parallel to entries_, then to streams_.
  MemoryFacts memory_;                         ///< Current facts of the graph's own memory.
  std::map<TensorId, bool> truths_;            ///< Known values of conditions, by storage.
  std::vector<PartitionId> inputs_, outputs_;  ///< Facts of the inputs and outputs of the current op.
  bool grows_ = false;                         ///< True if the solver resumes an earlier context.
  std::vector<TensorId> written_;              ///< Tensors that the ops added since then write.
  std::vector<std::uint32_t> rewritten_;
};

}  // namespace popsr
