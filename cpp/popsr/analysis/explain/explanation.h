// Contents of an explanation, and its text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "popsr/analysis/explain/dataflow.h"

namespace popsr {

enum class RootKind : std::uint8_t {
  kStream,         ///< A stream gives each replica data of its own.
  kVariable,       ///< A variable has several groups, or is sharded.
  kUninitialised,  ///< Memory that nothing was written to.
  kOwnValue,       ///< An op gives each replica a value of its own, such as a replica index.
  kPart,           ///< A collective gives each member of a group a part of its own.
  kZeros,          ///< Nothing is sent to some replicas, which hold zeros instead.
  kSeeds,          ///< Stochastic rounding with different random numbers.
  kDivergence,     ///< A conditional may send the replicas into different branches.
  kPosition,       ///< Some replicas may have skipped loads of a stream that gives all of them the same.
  kUndeclared,     ///< The op has no partition rule.
};
std::string_view to_string(RootKind kind);

class GradientFlow;

enum class StepKind : std::uint8_t {
  kOp,         ///< An op computes the value.
  kWrite,      ///< An op writes the value in place.
  kStore,      ///< An op stores the value to remote memory.
  kCall,       ///< A call or loop returns the value, or writes it by reference.
  kArgument,   ///< The call passes the value to the graph.
  kIteration,  ///< The value is the one at the end of the previous iteration.
  kRun,        ///< The value is the one at the end of the previous run.
  kStart,      ///< The program starts with the value.
};
std::string_view to_string(StepKind kind);

/// One step: replicas r and s differ in this value because they, or two others, differ in the value of the
/// next step.
struct ExplainStep {
  StepKind kind = StepKind::kOp;
  TensorId tensor = kNone;
  OpId op = kNone;  ///< Op that wrote or passes the value; kNone for variables between runs.
  LocationId location = {};
  Replica r = 0, s = 0;
  PartitionId fact = {};
  std::string text = {};
};

/// A value on a path, with the pair of replicas that differs there.
struct Difference {
  Value value;
  Replica r = 0, s = 0;
  Link link = Link::kOperand;  ///< Edge from the previous node to this one.
  std::uint32_t input = 0;
  bool operator==(const Difference&) const = default;
};

struct Explanation {
  TensorId tensor = kNone;
  Replica r = 0, s = 0;
  PartitionId fact = {};
  /// Nodes from the value to the root; the value alone if the replicas are equal.
  std::vector<Difference> path;
  std::optional<RootKind> root = {};  ///< Cause of the difference; nullopt if the replicas are equal.
  LocationId root_location = {};
  /// Conditional that separates the replicas, at roots of kind kDivergence and kPosition.
  const Op* conditional = nullptr;
  std::string root_text = {}, suggestion = {};
};

/// Makes the step of a path's i-th node; for equal replicas, the reason why they are. Steps are made on
/// demand, since paths can be long. `gradients` tells which values are partial sums.
ExplainStep step_of(Dataflow& flow, const Explanation& explanation, std::size_t i,
                    GradientFlow* gradients = nullptr);
/// Text about the values that differ at the root, and the cause.
std::string root_text(const Dataflow& flow, const Explanation& explanation);
/// True if the pair differs in the start value of a variable that is declared equal on both, so that an
/// earlier run made them differ.
bool differs_since(const PartitionAnalysis& facts, const Difference& node);
/// Derivation of a value's fact: the rule that was applied and the facts that it was applied to.
std::string derivation(Dataflow& flow, const Value& value);
/// Text of the explanation in lines, each with file:line; long paths without their middle.
std::string to_string(Dataflow& flow, const Explanation& explanation, GradientFlow* gradients = nullptr);

/// Text such as "equal inside {0,1},{2,3}", "equal nowhere", "equal on all replicas".
std::string equal_inside(const PartitionTable& table, PartitionId fact);
/// Text of an op as a call, such as "add('x', 'y')".
std::string call_text(const Ir& ir, const Op& op);
/// Text such as "{0,1}{2,3}"; the number of blocks if there are many.
std::string blocks_text(const PartitionTable& table, PartitionId fact);
/// Text such as "model.py:31"; "?" if the location is unknown.
std::string place_text(const Ir& ir, LocationId location);
/// Location of the op that wrote the value or passes it. An op without one has the location of the
/// innermost call that has one; a variable the location where it was made.
LocationId location_of(const Dataflow& flow, const Value& value);

}  // namespace popsr
