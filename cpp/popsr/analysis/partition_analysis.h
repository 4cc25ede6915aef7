// The replica-partition analysis.
//
// Claim: for every value (an output of an op, in one calling context), replicas of one block hold bitwise
// equal contents whenever they execute that point. top() = equal everywhere; finer = less is proved. Program
// point: facts are those right after the op; a tensor that is written in place gets a new fact each time.
// Transfer, per kind of op:
//   - an op: its OpDef::partition rule, met with the execution partition; an op that rounds stochastically
//     also meets its seed partition S (S = join of its outputs' facts, or one block in mode kIdentical);
//   - call: the callee is analysed in the context (facts of its inputs, also of their parts, conditions that
//     are known, execution partition); memoised by that key;
//   - conditional: branches are analysed with execution partition E & fact of the condition; a result or a
//     place that a branch writes keeps the condition & what both branches leave there; where both leave the
//     same value of the same operands, what one would leave if all took it. In a branch its condition is
//     known, and a conditional on it there runs one branch;
//   - repeat: the facts X of carried values and of values written by reference are followed from iteration to
//     iteration until they come back; the body is claimed for their meet, and the last ones are left. Where
//     that takes too many: greatest fixpoint X = X0 & body(X);
//   - remote memory: one fact per entry, handed through calls and loops like values passed by reference;
//     likewise what streams that branches load give next (ir/stream_positions.h);
//   - load from a stream: rows that are declared or assumed to be equal, read at equal positions;
//   - variables and remote memory: fixpoint across runs, X = settings & value after the run.
// Assumes: what it is told of this program's data (Assumptions), beside what streams and variables declare.
// Assumes: all replicas run one program; collectives reduce in ascending replica order; ops are
// deterministic. Cost: O(ops * falls) meets, each a table look-up; a value falls at most replicas - 1 times.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "popsr/analysis/context_entry.h"
#include "popsr/analysis/fact_store.h"
#include "popsr/analysis/numbers/value_numbers.h"
#include "popsr/analysis/solver_fault.h"
#include "popsr/effects/input_uses.h"
#include "popsr/effects/loop_depths.h"
#include "popsr/effects/remote_access.h"
#include "popsr/effects/stream_positions.h"
#include "popsr/effects/written_inputs.h"
#include "popsr/ir/ir.h"

namespace popsr {

struct NarrowingTag {
  static constexpr std::uint32_t kDefault = 0;
};
using NarrowingId = Id<NarrowingTag>;
inline constexpr NarrowingId kNoNarrowing{};  ///< All replicas run together.

/// Assumptions about a program's data that its declarations do not make.
struct Assumptions {
  /// By stream: replicas whose rows are equal in each transfer. Of absent ones what their mode says.
  std::map<StreamId, PartitionId> rows = {};
  /// By variable, shard or remote entry: replicas that start with the same value. Of absent ones
  /// declared_fact().
  std::map<TensorId, PartitionId> start = {};
  /// Of these: whose parts start with facts of their own, `start` being their meet.
  std::map<TensorId, Pieces> start_pieces = {};
  /// Memory that keeps a fact whatever is written to it: by storage.
  std::map<TensorId, PartitionId> pinned = {};
  SolverFault fault = SolverFault::kNone;  ///< For tests of tests.
};

/// A conditional that parts replicas: only replicas of one block of `exec` certainly run its branches
/// together.
struct Narrowing {
  OpId op = kNone;                   ///< kNone: no conditional, all replicas run together.
  NarrowingId outer = kNoNarrowing;  ///< The narrowing at the conditional itself.
  PartitionId exec = {};
  auto operator<=>(const Narrowing&) const = default;
};

class MemoryFacts;

/// Facts of a context when its graph ends.
struct ContextEnd {
  std::vector<PartitionId> outputs;
  std::vector<PartitionId> inputs;  ///< Of the inputs' allocations; of the variables for the main graph.
  std::vector<PartitionId> remote;  ///< Of RemoteAccess::of(graph), then of StreamPositions::of(graph).
  PiecesByInput output_pieces, input_pieces;
  std::shared_ptr<const MemoryFacts> memory;
};

/// A graph analysed for given input facts.
struct Context {
  GraphId graph;
  std::vector<PartitionId> inputs;  ///< Of Graph::inputs; of the variables for the main graph.
  std::vector<PartitionId> remote;  ///< As in ContextEnd, when the graph starts.
  PiecesByInput pieces = {};        ///< Of inputs; as in ContextEntry.
  std::map<std::uint32_t, bool> truths = {};
  PartitionId exec = {};       ///< Replicas that certainly run the graph together.
  NarrowingId narrowing = {};  ///< The conditionals that made it so.
  FactStore ops;               ///< Parallel to Graph::ops; of merged ops what their parts have.
  std::map<std::uint32_t, std::vector<OpFacts>> parts;  ///< Of merged ops, by their position in Graph::ops.
  ContextEnd end = {};
};

/// Replicas that start with the same value of a variable, shard or remote entry: what its grouping declares.
PartitionId declared_fact(const Ir& ir, TensorId id);

/// Replicas that get the same rows of a stream: what its mode declares.
PartitionId declared_rows(const Ir& ir, StreamId id);

/// Facts of an op in a context; of a part of a merged op, of that part alone.
FactView facts_of(const Ir& ir, const Context& context, const Op& op);

struct LintMemory;

/// The reasons for which a program that grew may have other facts where it was there before. Tests leave one
/// out to see that it matters.
struct GrowthChecks {
  bool runs = true;     ///< What new ops write may be handed on by runs.
  bool called = true;   ///< Ops of called graphs may act on what their callers see.
  bool streams = true;  ///< New branches may load streams that others load.
  bool changes = true;  ///< What was there may have changed.
};

class PartitionAnalysis {
 public:
  /// Analyses the main graph and all it calls.
  explicit PartitionAnalysis(const Ir& ir, Assumptions assumptions = {});
  /// The analysis of the program as it is now, for as much work as what was added since `before`, which stays
  /// as it is; null where that is not enough (partition_growth.cpp).
  static std::unique_ptr<PartitionAnalysis> grown(const PartitionAnalysis& before,
                                                  const GrowthChecks& checks = {});
  PartitionAnalysis(PartitionAnalysis&&) = default;

  const Ir& ir() const { return *ir_; }
  std::uint64_t epoch() const { return epoch_; }
  /// Throws GraphError when the program changed since the analysis, or the seed rules of its ops.
  void check_fresh() const;
  /// The change, as far as that is known: "relu at model.py:31, which is newer", "version 5 for 3".
  std::string change() const;

  const Assumptions& assumptions() const { return assumptions_; }
  /// Replicas that get the same rows of a stream, as declared or assumed.
  PartitionId rows(StreamId id) const { return rows_[id]; }
  /// Replicas that start with the same value of a variable, shard or remote entry, as declared or assumed.
  PartitionId start(TensorId id) const;
  /// The fact that memory is assumed to keep; nullopt when it has the facts of what is written.
  std::optional<PartitionId> pinned_fact(TensorId storage) const;

  const RemoteAccess& remote() const { return remote_; }
  const StreamPositions& streams() const { return streams_; }
  ContextId main_id() const { return main_; }
  const Context& main() const { return context(main_); }
  const Context& context(ContextId id) const { return *contexts_[id]; }
  const Narrowing& narrowing(NarrowingId id) const { return narrowings_[id]; }
  /// 1 when no conditional parts replicas.
  std::size_t num_narrowings() const { return narrowings_.size(); }
  /// The outermost conditional around the context from which on replicas of one block of `groups` may part:
  /// why an exchange within these groups is under unequal control. kNone when they certainly stay together.
  OpId diverging_op(const Context& context, PartitionId groups) const;
  /// The tensors whose facts a context starts from: Graph::inputs, and for the main graph its state:
  /// variables and shards. (Remote entries too.)
  const std::vector<TensorId>& entry_tensors(GraphId graph) const;
  /// Facts of a graph's own memory when it starts in that context.
  MemoryFacts entry_memory(const Context& context) const;
  /// Contexts that the program reaches, per graph, in the order in which it comes to them.
  const std::vector<ContextId>& contexts(GraphId graph) const;
  /// Fact of a variable, shard or remote entry at the start of every run (the fixpoint), top() for others.
  PartitionId variable(TensorId id) const;
  /// True if what runs leave is as equal as what is declared: variable() is, of all state.
  bool preserves_declared() const { return preserves_starts_ && assumptions_.start.empty(); }

  /// Values of a tensor in one context: (op index or -1 for the initial value, fact), in time order.
  std::vector<std::pair<int, PartitionId>> values(TensorId tensor, ContextId context) const;
  /// Fact of the tensor's last value in its graph, met over the contexts that the program reaches.
  PartitionId partition(TensorId tensor) const;
  /// Seed partition of an op, met over contexts.
  PartitionId seeds(OpId op) const;

  /// The lints that were found of these facts, or of those that they grew from; null before.
  std::shared_ptr<const LintMemory>& lint_memory() const { return lint_memory_; }

 private:
  friend class ContextSolver;
  ContextId solve(GraphId graph, const ContextEntry& entry, NarrowingId narrowing);
  NarrowingId narrow(NarrowingId outer, OpId op, PartitionId exec);
  void solve_runs();
  /// Fact of a remote entry after a call or loop that reaches it.
  std::optional<PartitionId> remote_after(const FactView& facts, TensorId entry) const;
  /// values() of memory that several tensors share.
  std::vector<std::pair<int, PartitionId>> shared_values(const Tensor& tensor, const Context& context) const;
  void list_reachable(ContextId id, std::size_t first_op);

  PartitionAnalysis(const PartitionAnalysis& before) = default;
  bool grow(const PartitionAnalysis& before, const GrowthChecks& checks);
  bool add_to_called(const PartitionAnalysis& before, const GrowthChecks& checks);
  bool add_to_main(const PartitionAnalysis& before, const GrowthChecks& checks);
  bool preserves_runs(const Context& context, const std::vector<std::uint32_t>& rewritten) const;

  const Ir* ir_;
  std::uint64_t epoch_, seeds_epoch_;
  Counters counters_;  ///< Of the program that the facts are of.
  RemoteAccess remote_;
  StreamPositions streams_;
  WrittenInputs written_;
  IdVector<NarrowingId, Narrowing> narrowings_{Narrowing{}};
  std::map<Narrowing, NarrowingId> narrowing_ids_;
  IdVector<ContextId, std::shared_ptr<const Context>> contexts_;
  struct Key {
    GraphId graph;
    NarrowingId narrowing;
    ContextEntry entry;
    auto operator<=>(const Key&) const = default;
  };
  std::map<Key, ContextId> memo_;  ///< Of called graphs.
  ContextId main_ = {};
  using Reachable = IdVector<GraphId, std::vector<ContextId>>;
  std::shared_ptr<Reachable> reachable_;
  mutable std::shared_ptr<const LintMemory> lint_memory_;
  mutable bool has_grown_ = false;  ///< Another analysis goes on from what this one knows.
  Assumptions assumptions_;
  IdVector<StreamId, PartitionId> rows_;
  std::vector<TensorId> state_;                   ///< Variables and shards, ascending.
  std::vector<PartitionId> variables_, entries_;  ///< Facts of state_ and of remote entries before a run.
  bool preserves_starts_ = false;                 ///< They are the ones before the first run.
  InputUses uses_;
  LoopDepths loops_;
  ValueNumbers numbers_;
};

}  // namespace popsr
