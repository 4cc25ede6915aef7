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
  ContextSolver(PartitionAnalysis& analysis, GraphId graph, const ContextEntry& entry, NarrowingId narrowing);
  /// Of a graph that grew since the context was solved: goes on where it ended.
  ContextSolver(PartitionAnalysis& analysis, const Context& before);
  Context run();
  /// Of a graph that grew: the inputs, of the main graph the state, whose memory its new ops write.
  /// Ascending.
  const std::vector<std::uint32_t>& rewritten() const { return rewritten_; }

 private:
  PartitionId last(TensorId tensor, std::uint32_t index, PiecesByInput& parts);
  void find_ends(const Graph& graph);
  void step(const Op& op);
  /// Facts of the outputs of an op that runs no graphs into outputs_; its seed partition, if it has one.
  std::optional<PartitionId> transfer_local(const Op& op);
  std::vector<PartitionId> transfer_parts(const Op& op);
  OpFacts transfer(const Op& op);
  OpFacts transfer_call(const Op& op);
  OpFacts transfer_repeat(const Op& op);
  OpFacts transfer_conditional(const Op& op);
  /// The context of a loop's body in all iterations, and in the last one.
  struct Iterations {
    ContextId all = {}, last = {};
  };
  /// Follows the facts from iteration to iteration; nullopt when that takes too many.
  std::optional<Iterations> follow(const Op& op, GraphId body, ContextEntry& entry);
  /// Greatest fixpoint of what one iteration hands to the next.
  ContextId fixpoint(const Op& op, GraphId body, ContextEntry entry);
  ContextEntry next_entry(const Op& op, const ContextEntry& entry, const Context& body);
  void meet_with_next(ContextEntry& entry, const ContextEntry& next, GraphId graph, bool& changed) const;
  /// Facts of the places that a branch changes: allocations and remote entries, and positions of streams.
  struct Changes {
    std::map<TensorId, PartitionId> tensors;
    std::map<TensorId, Pieces> pieces;  ///< Of some of these.
    std::map<StreamId, PartitionId> positions;
  };
  ContextId solve_branch(const Op& op, const CalledGraph& branch, bool holds, NarrowingId narrowing);
  Changes changes_of(const Op& op, const CalledGraph& branch, const Context& callee);
  void write_changes(const Changes& taken, const Changes& other, OpFacts& facts);
  void write_only_changes(const Changes& taken, OpFacts& facts);
  bool is_renamed(TensorId storage, const Changes& changes) const;
  /// For places that both branches leave alike: the facts that one of them leaves if all replicas take it.
  /// `before`: of remote memory and positions, before the conditional.
  void write_equal_results(const Op& op, const CalledGraph& branch, const std::vector<PartitionId>& before,
                           OpFacts& facts);
  bool may_coarsen(const Op& op, const EqualResults& alike, const OpFacts& facts) const;
  bool coarsen(PartitionId& fact, PartitionId to);
  void merge_outputs(const Op& op, const ContextEnd& taken, const ContextEnd& other, OpFacts& facts);
  void merge_pieces(TensorId storage, const Changes& taken, const Changes& other, OpFacts& facts);
  /// The facts that a called graph starts with.
  ContextEntry entry_of(const Op& op, const CalledGraph& called);
  /// The truth of a condition, where all replicas that run the graph have the same by the way they came.
  std::optional<bool> truth(TensorId condition) const;
  void read_inputs(const Op& op, std::vector<PartitionId>& facts);
  void write(const std::vector<TensorId>& tensors, const std::vector<PartitionId>& facts);
  /// `last`: of the op's inputs, when the graph that it ran ends.
  void write_modified(const Op& op, const TensorFacts& last, OpFacts& facts);
  /// The op's outputs are those that its graph ends with. They are not written yet.
  static void copy_outputs(const Op& op, const ContextEnd& end, OpFacts& facts);
  bool has_fault(SolverFault fault) const { return analysis_.assumptions().fault == fault; }
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
  bool has_pinned_facts_;  ///< Some memory is assumed to keep its fact.
  Context context_;
  const std::vector<TensorId>& entries_;  ///< Remote memory that the graph reaches, ascending.
  const std::vector<StreamId>& streams_;  ///< Whose positions may part and that the graph loads, ascending.
  std::vector<PartitionId> remote_;       ///< Current facts, parallel to entries_, then to streams_.
  MemoryFacts memory_;                    ///< Current facts of the graph's own memory.
  std::map<TensorId, bool> truths_;       ///< Of conditions that are known, by storage.
  std::vector<PartitionId> inputs_, outputs_;  ///< Of the op at hand.
  bool grows_ = false;                         ///< Goes on with a context.
  std::vector<TensorId> written_;              ///< By the ops since then.
  std::vector<std::uint32_t> rewritten_;
};

}  // namespace popsr
