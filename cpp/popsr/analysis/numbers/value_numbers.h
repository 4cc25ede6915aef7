// Numbers of values: values of one number are equal on each replica, however it came to them.
//
// A graph is run on numbers instead of values, with a number of its own for each input. The number of an op's
// output is made of its definition, its attributes and types, and the numbers of what it reads: operands, the
// remote entries that it reaches, the position of the stream that it loads. Ops of which that is not all are
// numbered afresh each time: those that draw random numbers or round stochastically, whose noise depends on
// the way to them, and those that leave memory undefined. Called graphs are run where they are called, both
// branches of a conditional one after the other; what they leave differently is a choice by the condition.
//
// The whole program is run so, if it is small; else each graph for itself, which tells less: inputs that
// are always given the same value have two numbers then.
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
#include "popsr/analysis/solver_fault.h"
#include "popsr/effects/written_inputs.h"
#include "popsr/ir/calls/called_graphs.h"

namespace popsr {

/// Values that both branches of a conditional leave alike, wherever it is: all replicas might take the then
/// branch, and would be left with the same.
struct EqualResults {
  bool is_known = false;
  std::vector<bool> outputs = {};
  std::set<TensorId> tensors = {};  ///< Of those that a branch modifies; their storages.
  bool memory = true;               ///< False: nothing is known of remote memory and streams.
  std::set<TensorId> differing_entries = {};
  std::set<StreamId> differing_positions = {};

  /// Of a place that a branch writes: a storage, or a remote entry.
  bool has(TensorId place, bool is_entry) const {
    return is_entry ? memory && !differing_entries.contains(place) : tensors.contains(place);
  }
  bool has_position(StreamId id) const { return memory && !differing_positions.contains(id); }
};

class ValueNumbers {
 public:
  explicit ValueNumbers(const Ir& ir, SolverFault fault = SolverFault::kNone)
      : ir_(ir), fault_(fault), written_(ir) {}
  /// Of a program that may have grown: it knows nothing.
  ValueNumbers(const ValueNumbers& other) : ValueNumbers(other.ir_, other.fault_) {}
  ValueNumbers& operator=(const ValueNumbers&) = delete;

  /// The reference lives as long as this object. Of large programs and graphs nothing is known.
  const EqualResults& equal_results(const Op& conditional);
  /// False while nothing was asked: the answers hold of the graphs and calls that the program has.
  bool has_results() const { return !seen_.empty(); }

 private:
  /// Memory that no graph owns, and conditions that are known.
  struct World {
    Number base = {};  ///< Places without a number have one made of this.
    std::map<TensorId, Number> entries = {};
    std::map<StreamId, Number> positions = {};
    std::map<Number, bool> truths = {};
    bool operator==(const World&) const = default;
  };
  struct Frame {
    GraphId graph;
    std::vector<Number> memory;  ///< By Tensor::index of the storage.
    bool records = false;        ///< What its conditionals leave alike is noted.
  };
  struct Result {
    std::vector<Number> outputs, inputs;  ///< Of the graph as it ends.
  };

  Result run(GraphId graph, const std::vector<Number>& inputs, World& world, bool records);
  void step(Frame& frame, World& world, const Op& op);
  void apply(Frame& frame, World& world, const Op& op);
  std::vector<Number> enter(Frame& frame, World& world, const Op& op, const CalledGraph& called);
  void repeat(Frame& frame, World& world, const Op& op);
  void branch(Frame& frame, World& world, const Op& op);
  /// The caller's graph, after a branch.
  struct Ends {
    Frame frame;
    World world;
  };
  Ends run_branch(const Frame& frame, const World& world, const Op& op, const CalledGraph& branch,
                  std::pair<Number, bool> truth);
  /// Both branches where the condition is false; the then branch where it is true, unless it never is there.
  struct BranchPair {
    const Ends &then_branch, &else_branch;
    const Ends* taken;
    Number first;  ///< Numbers that were there before are less.
  };
  void note(const Op& op, const BranchPair& both_ends);
  void run_whole(GraphId graph, bool with_called);
  /// The side of a choice by a condition that is known.
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
  SolverFault fault_;
  WrittenInputs written_;
  NumberTable table_;
  std::size_t left_ = 0;      ///< Ops that may still be run; with none left, nothing is alike.
  bool records_all_ = false;  ///< Conditionals of called graphs are noted too.
  std::set<Number> used_;     ///< Conditions whose truth made a difference.
  std::set<GraphId> seen_;
  std::unordered_map<OpId, EqualResults> equal_results_;              ///< Of conditionals in graphs of seen_.
  std::unordered_map<const OpDef*, std::vector<const Op*>> symbols_;  ///< Ops that differ.
  std::vector<TensorId> constants_;                                   ///< Whose contents differ.
};

}  // namespace popsr
