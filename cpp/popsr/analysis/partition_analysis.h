// The replica-partition analysis.
//
// Claim: for every value (an output of an op, in one calling context), replicas of one block hold bitwise
// equal contents whenever they execute that point. top() = equal everywhere; finer = less is proved. Program
// point: facts are those right after the op; a tensor that is written in place gets a new fact each time.
// Transfer, per kind of op:
//  - an op: its OpDef::partition rule, met with the execution partition; an op that rounds stochastically
//    also meets its seed partition S (S = join of its outputs' facts, or one block in mode kIdentical);
//  - call: the callee is analysed in the context (facts of its inputs, also of their parts, conditions that
//    are known, execution partition); memoised by that key;
//  - conditional: branches are analysed with execution partition E & fact of the condition. A result, or a
//    place that a branch writes, gets the meet of the condition's fact and the facts after both branches;
//    where both branches leave equal values of equal operands, the fact after one branch that all replicas
//    take. In a branch its condition is known, and a conditional on it there runs one branch;
//  - repeat: the facts X of carried values and of values written by reference are followed from iteration to
//    iteration until they repeat; the body is claimed for their meet, and the loop ends with the last ones.
//    If that takes too many iterations: greatest fixpoint X = X0 & body(X);
//  - remote memory: one fact per entry, passed through calls and loops like values passed by reference;
//    likewise positions of streams that branches load (effects/stream_positions.h);
//  - load from a stream: rows that are declared or assumed to be equal, read at equal positions;
//  - variables and remote memory: fixpoint across runs, X = settings & value after the run.
// Assumes: declarations of streams and variables, and Assumptions about the program's data, are true.
// Assumes: all replicas run one program; collectives reduce in ascending replica order; ops are
// deterministic. Cost: O(ops * changes) meets, each a table look-up; a fact gets finer at most
// replicas - 1 times.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "popsr/analysis/fact_store.h"
#include "popsr/analysis/numbers/value_numbers.h"
#include "popsr/analysis/seed_rules.h"
#include "popsr/analysis/solver/context_entry.h"
#include "popsr/analysis/solver/solver_fault.h"
#include "popsr/effects/input_uses.h"
#include "popsr/effects/loop_depths.h"
#include "popsr/effects/remote_access.h"
#include "popsr/effects/stream_positions.h"
#include "popsr/effects/written_inputs.h"
#include "popsr/ir/flat/flat_schedule.h"
#include "popsr/ir/ir.h"

namespace popsr {

struct NarrowingTag {
  static constexpr std::uint32_t kDefault = 0;
};
using NarrowingId = Id<NarrowingTag>;
/// Narrowing without a conditional: all replicas run together.
inline constexpr NarrowingId kNoNarrowing{};

/// Assumptions about a program's data that its declarations do not make.
struct Assumptions {
  /// Partition of replicas whose rows are equal in each transfer, by stream; streams that are absent follow
  /// their mode.
  std::map<StreamId, PartitionId> rows = {};
  /// Partition of replicas that start with the same value, by variable, shard or remote entry;
  /// declared_fact() for absent ones.
  std::map<TensorId, PartitionId> start = {};
  /// Facts by part at the start, for tensors in `start`, which has their meet.
  std::map<TensorId, Pieces> start_pieces = {};
  /// Facts that memory keeps whatever is written to it, by storage.
  std::map<TensorId, PartitionId> pinned = {};
  /// Deliberate fault of the solver, for tests that must detect it.
  SolverFault fault = SolverFault::kNone;
};

/// A conditional that separates replicas: only replicas of one block of `exec` certainly run its branches
/// together.
struct Narrowing {
  OpId op = kNone;                   ///< Conditional; kNone: none, all replicas run together.
  NarrowingId outer = kNoNarrowing;  ///< Narrowing around the conditional itself.
  PartitionId exec = {};
  auto operator<=>(const Narrowing&) const = default;
};

class MemoryFacts;

/// Facts of a context when its graph ends.
struct ContextEnd {
  std::vector<PartitionId> outputs;
  /// Facts of the inputs' allocations; for the main graph, of the variables.
  std::vector<PartitionId> inputs;
  /// Facts of remote entries, then of stream positions, as in ContextEntry::remote.
  std::vector<PartitionId> remote;
  PiecesByInput output_pieces, input_pieces;
  std::shared_ptr<const MemoryFacts> memory;
};

/// A graph analysed for given input facts.
struct Context {
  GraphId graph;
  std::vector<PartitionId> inputs;  ///< Fact of each graph input; for the main graph, of each variable.
  /// Facts of remote entries and stream positions when the graph starts, as in ContextEnd.
  std::vector<PartitionId> remote;
  PiecesByInput pieces = {};  ///< Facts of inputs by part, as in ContextEntry.
  std::map<std::uint32_t, bool> truths = {};
  PartitionId exec = {};  ///< Partition of replicas that certainly run the graph together.
  /// Conditionals that narrowed `exec`: the innermost one, which links to the others.
  NarrowingId narrowing = {};
  FactStore ops;  ///< Facts of the ops, parallel to Graph::ops; a merged op has the facts of its parts.
  /// Facts of the parts of merged ops, by position in Graph::ops.
  std::map<std::uint32_t, std::vector<OpFacts>> parts;
  ContextEnd end = {};
};

/// Partition of replicas that start with the same value of a variable, shard or remote entry, as its
/// grouping declares.
PartitionId declared_fact(const Ir& ir, TensorId id);

/// Partition of replicas that get the same rows of a stream, as its mode declares.
PartitionId declared_rows(const Ir& ir, StreamId id);

/// Facts of an op in a context; for a part of a merged op, of that part alone.
FactView facts_of(const Ir& ir, const Context& context, const Op& op);

struct LintMemory;

/// Checks for reasons why ops of a program that grew may have other facts than before. Tests turn one off
/// to see that it matters.
struct GrowthChecks {
  bool runs = true;     ///< New ops may write state that later runs read.
  bool called = true;   ///< New ops of called graphs may change what their callers see.
  bool streams = true;  ///< New branches may load streams that others load.
  bool changes = true;  ///< Existing ops and tensors may have changed.
};

class PartitionAnalysis {
 public:
  /// Analyses the main graph and all graphs that it calls.
  explicit PartitionAnalysis(const Ir& ir, SeedRules seed_rules = {}, Assumptions assumptions = {});
  /// Analysis of the present program at a cost proportional to what was added since `before`, which stays
  /// valid; null if that is not possible (partition_growth.cpp).
  static std::unique_ptr<PartitionAnalysis> grown(const PartitionAnalysis& before, SeedRules seed_rules,
                                                  const GrowthChecks& checks = {});
  PartitionAnalysis(PartitionAnalysis&&) = default;

  const Ir& ir() const { return *ir_; }
  std::uint64_t epoch() const { return epoch_; }
  /// Throws GraphError if the program changed since the analysis.
  void check_fresh() const;
  /// Likewise, and if ops would have other rules than when the program was analysed.
  void check_fresh(const SeedRules& seed_rules) const;
  const SeedRules& seed_rules() const { return seed_rules_; }
  std::optional<SeedRule> seed_rule(const Op& op) const { return seed_rules_.of(*ir_, op); }
  /// Text of the change, as far as it is known: "relu at model.py:31, which is newer", "version 5 for 3".
  std::string change() const;

  const Assumptions& assumptions() const { return assumptions_; }
  /// Partition of replicas that get the same rows of a stream, as declared or assumed.
  PartitionId rows(StreamId id) const { return rows_[id]; }
  /// Partition of replicas that start with the same value of a variable, shard or remote entry, as declared
  /// or assumed.
  PartitionId start(TensorId id) const;
  /// Fact that memory is assumed to keep; nullopt if it has the facts of the values written to it.
  std::optional<PartitionId> pinned_fact(TensorId storage) const;

  const RemoteAccess& remote() const { return remote_; }
  const StreamPositions& streams() const { return streams_; }
  ContextId main_id() const { return main_; }
  const Context& main() const { return context(main_); }
  const Context& context(ContextId id) const { return *contexts_[id]; }
  const Narrowing& narrowing(NarrowingId id) const { return narrowings_[id]; }
  /// Number of narrowings; 1 if no conditional separates replicas.
  std::size_t num_narrowings() const { return narrowings_.size(); }
  /// Outermost conditional around the context from which on replicas of one block of `groups` may diverge:
  /// why an exchange within these groups is under unequal control. kNone if they certainly stay together.
  OpId diverging_op(const Context& context, PartitionId groups) const;
  /// Tensors whose facts a context starts from: Graph::inputs; for the main graph its state, which is
  /// variables and shards. Remote entries are not listed.
  const std::vector<TensorId>& entry_tensors(GraphId graph) const;
  /// Facts of a graph's own memory when it starts in that context.
  MemoryFacts entry_memory(const Context& context) const;
  /// Contexts that the program reaches, per graph, in the order of the walk.
  const std::vector<ContextId>& contexts(GraphId graph) const;
  /// Schedule of a graph in arrays.
  const FlatSchedule& schedule(GraphId graph) const;
  /// Fact of a variable, shard or remote entry at the start of every run (the fixpoint), top() for others.
  PartitionId variable(TensorId id) const;
  /// True if all state is as equal after each run as declared.
  bool preserves_declared() const { return preserves_starts_ && assumptions_.start.empty(); }

  /// Values of a tensor in one context: (op index or -1 for the initial value, fact), in time order.
  std::vector<std::pair<int, PartitionId>> values(TensorId tensor, ContextId context) const;
  /// Fact of the tensor's last value in its graph, met over the contexts that the program reaches.
  PartitionId partition(TensorId tensor) const;
  /// Seed partition of an op, met over contexts.
  PartitionId seeds(OpId op) const;

  /// Lints found with these facts, or with the facts they grew from; null before.
  std::shared_ptr<const LintMemory>& lint_memory() const { return lint_memory_; }

 private:
  friend class ContextSolver;
  ContextId solve(GraphId graph, const ContextEntry& entry, NarrowingId narrowing);
  NarrowingId narrow(NarrowingId outer, OpId op, PartitionId exec);
  void solve_runs();
  /// Fact of a remote entry after a call or loop that reaches it.
  std::optional<PartitionId> remote_after(const FactView& facts, TensorId entry) const;
  /// Variant of values() for memory that several tensors share.
  std::vector<std::pair<int, PartitionId>> shared_values(const Tensor& tensor, const Context& context) const;
  void list_reachable(ContextId id, std::size_t first_op);

  PartitionAnalysis(const PartitionAnalysis& before) = default;
  bool grow(const PartitionAnalysis& before, const GrowthChecks& checks);
  bool add_to_called(const PartitionAnalysis& before, const GrowthChecks& checks);
  bool add_to_main(const PartitionAnalysis& before, const GrowthChecks& checks);
  bool preserves_runs(const Context& context, const std::vector<std::uint32_t>& rewritten) const;

  const Ir* ir_;
  std::uint64_t epoch_;
  SeedRules seed_rules_;
  Counters counters_;  ///< Counters of the program at the time of the analysis.
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
  std::map<Key, ContextId> memo_;  ///< Contexts of called graphs by key.
  ContextId main_ = {};
  using Reachable = IdVector<GraphId, std::vector<ContextId>>;
  std::shared_ptr<Reachable> reachable_;
  mutable std::shared_ptr<const LintMemory> lint_memory_;
  mutable bool has_grown_ = false;  ///< True if another analysis was grown from this one.
  Assumptions assumptions_;
  IdVector<StreamId, PartitionId> rows_;
  std::vector<TensorId> state_;                   ///< Variables and shards, ascending.
  std::vector<PartitionId> variables_, entries_;  ///< Facts of state_ and of remote entries before a run.
  /// True if the facts before every run are the ones before the first run.
  bool preserves_starts_ = false;
  InputUses uses_;
  LoopDepths loops_;
  ValueNumbers numbers_;
};

}  // namespace popsr
