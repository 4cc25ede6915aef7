// Numbers of values: values of one number are equal on each replica, however they were computed.
//
// A graph is run on numbers instead of values, with a number of its own for each input. The number of an op's
// output is made of its definition, its attributes and types, and the numbers of what it reads: operands, the
// remote entries that it reaches, the position of the stream that it loads. Ops whose outputs depend on more
// get new numbers each time: ops that draw random numbers or round stochastically, whose noise depends on the
// call path, and ops that leave memory undefined. Called graphs are run where they are called, both branches
// of a conditional one after the other; values that they leave differently become a choice by the condition.
//
// A small program is run as a whole; otherwise each graph by itself, which proves less: inputs that are
// always passed the same value have two numbers then.
//
// A collective's output is a function of its operand on all members, who must take part together: where the
// operands have one number, they are equal on each member.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "popsr/analysis/numbers/number_table.h"
#include "popsr/analysis/seed_rules.h"
#include "popsr/analysis/solver/solver_fault.h"
#include "popsr/effects/written_inputs.h"
#include "popsr/ir/calls/called_graphs.h"

namespace popsr {

/// Values that are equal after either branch of a conditional, in every context: all replicas might take
/// the then branch, with the same result.
struct EqualResults {
  bool is_known = false;
  std::vector<bool> outputs = {};
  std::set<TensorId> tensors = {};  ///< Storages of modified tensors that both branches leave equal.
  bool memory = true;               ///< False: nothing is known of remote memory and streams.
  std::set<TensorId> differing_entries = {};
  std::set<StreamId> differing_positions = {};

  /// True if both branches leave an equal value in a place that a branch writes: a storage, or a remote
  /// entry.
  bool has(TensorId place, bool is_entry) const {
    return is_entry ? memory && !differing_entries.contains(place) : tensors.contains(place);
  }
  bool has_position(StreamId id) const { return memory && !differing_positions.contains(id); }
};

class ValueNumbers {
 public:
  explicit ValueNumbers(const Ir& ir, SeedRules seed_rules = {}, SolverFault fault = SolverFault::kNone)
      : ir_(ir), seed_rules_(std::move(seed_rules)), fault_(fault), written_(ir) {}
  /// Starts empty, since the program of the copy may have grown.
  ValueNumbers(const ValueNumbers& other) : ValueNumbers(other.ir_, other.seed_rules_, other.fault_) {}
  ValueNumbers& operator=(const ValueNumbers&) = delete;

  /// Equal results of the branches. The reference lives as long as this object. For large programs and
  /// graphs nothing is known.
  const EqualResults& equal_results(const Op& conditional);
  /// Takes the rules of a program that grew; before answers are given.
  void set_seed_rules(SeedRules rules) { seed_rules_ = std::move(rules); }
  /// True if some answer was given: answers hold for the graphs and calls that the program has.
  bool has_results() const { return !seen_.empty(); }

 private:
  /// State outside of graphs: remote memory, stream positions, and known conditions.
  struct World {
    Number base = {};  ///< Base number, from which places without a number get one.
    std::map<TensorId, Number> entries = {};
    std::map<StreamId, Number> positions = {};
    std::map<Number, bool> truths = {};
    bool operator==(const World&) const = default;
  };
  struct Frame {
    GraphId graph;
    std::vector<Number> memory;  ///< Numbers of memory, by Tensor::index of the storage.
    bool records = false;        ///< True if equal results of the frame's conditionals are recorded.
  };
  struct Result {
    std::vector<Number> outputs, inputs;  ///< Numbers at the end of the graph.
  };

  Result run(GraphId graph, const std::vector<Number>& inputs, World& world, bool records);
  void step(Frame& frame, World& world, const Op& op);
  void apply(Frame& frame, World& world, const Op& op);
  std::vector<Number> enter(Frame& frame, World& world, const Op& op, const CalledGraph& called);
  void repeat(Frame& frame, World& world, const Op& op);
  void branch(Frame& frame, World& world, const Op& op);
  /// State of the caller after a branch.
  struct Ends {
    Frame frame;
    World world;
  };
  Ends run_branch(const Frame& frame, const World& world, const Op& op, const CalledGraph& branch,
                  std::pair<Number, bool> truth);
  /// Ends of both branches where the condition is false, and of the then branch where it is true (`taken`,
  /// null if the condition is known).
  struct BranchPair {
    const Ends &then_branch, &else_branch;
    const Ends* taken;
    Number first;  ///< Lower bound of the numbers made since the branches began.
  };
  void note(const Op& op, const BranchPair& both_ends);
  void run_whole(GraphId graph, bool with_called);
  /// Simplifies a choice whose condition is known.
  Number resolve(Number number, const World& world);
  void merge(Number condition, Frame& frame, const Ends& taken, const Ends& other);
  void merge(Number condition, World& world, const World& taken, const World& other);
  Number read(const Frame& frame, TensorId tensor);
  void write(Frame& frame, TensorId tensor, Number number);
  Number entry(const World& world, TensorId id);
  Number position(const World& world, StreamId id);
  Number constant(TensorId id);
  std::uint32_t symbol(const Op& op);
  NumberTable::Key map_of(const View& view) const;

  const Ir& ir_;
  SeedRules seed_rules_;
  SolverFault fault_;
  WrittenInputs written_;
  NumberTable table_;
  std::size_t left_ = 0;      ///< Ops that may still be run; at 0 nothing counts as equal.
  bool records_all_ = false;  ///< True if conditionals of called graphs are recorded too.
  std::set<Number> used_;     ///< Conditions whose known value made a difference.
  std::set<GraphId> seen_;
  /// Equal results of conditionals in graphs of seen_.
  std::unordered_map<OpId, EqualResults> equal_results_;
  /// Representatives of ops that differ in definition, attributes or types.
  std::unordered_map<const OpDef*, std::vector<const Op*>> symbols_;
  std::vector<TensorId> constants_;  ///< Representatives of constants with different contents.
};

}  // namespace popsr
