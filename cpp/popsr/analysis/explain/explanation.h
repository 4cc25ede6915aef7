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
  kOwnValue,       ///< An op gives each replica a value of its own: a replica index.
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
  kWrite,      ///< An op writes it in place.
  kStore,      ///< An op stores it to remote memory.
  kCall,       ///< A call or loop returns it, or leaves it by reference.
  kArgument,   ///< The call passes it to the graph.
  kIteration,  ///< The iteration before leaves it.
  kRun,        ///< The run before leaves it.
  kStart,      ///< The program starts with it.
};
std::string_view to_string(StepKind kind);

/// Replicas r and s differ in this value because they, or two others, differ in the value of the next step.
struct ExplainStep {
  StepKind kind = StepKind::kOp;
  TensorId tensor = kNone;
  OpId op = kNone;  ///< That wrote or passes it; kNone for variables between runs.
  LocationId location = {};
  Replica r = 0, s = 0;
  PartitionId fact = {};
  std::string text = {};
};

/// A value on a path, with the pair that differs there.
struct Difference {
  Value value;
  Replica r = 0, s = 0;
  Link link = Link::kOperand;  ///< By which the node before led here.
  std::uint32_t input = 0;
  bool operator==(const Difference&) const = default;
};

struct Explanation {
  TensorId tensor = kNone;
  Replica r = 0, s = 0;
  PartitionId fact = {};
  std::vector<Difference> path;       ///< From the value to the root; the value alone when they are equal.
  std::optional<RootKind> root = {};  ///< Nothing when they are equal.
  LocationId root_location = {};
  const Op* conditional = nullptr;  ///< That parts them, at roots of kind kDivergence and kPosition.
  std::string root_text = {}, suggestion = {};
};

/// The step of a path's i-th node; of equal replicas, why they are. Steps are made when they are asked for:
/// paths can be long. `gradients` tells which values are partial sums.
ExplainStep step_of(Dataflow& flow, const Explanation& explanation, std::size_t i,
                    GradientFlow* gradients = nullptr);
/// Values that differ at the root, and the cause.
std::string root_text(const Dataflow& flow, const Explanation& explanation);
/// True if the pair differs in the start value of a variable that is declared equal on both: an earlier run
/// left it so.
bool differs_since(const PartitionAnalysis& facts, const Difference& node);
/// The derivation of a value's fact: the rule that was applied and the facts that it was applied to.
std::string derivation(Dataflow& flow, const Value& value);
/// Lines of text, each with file:line; long paths without their middle.
std::string to_string(Dataflow& flow, const Explanation& explanation, GradientFlow* gradients = nullptr);

/// "equal inside {0,1},{2,3}", "equal nowhere", "equal on all replicas".
std::string equal_inside(const PartitionTable& table, PartitionId fact);
/// "add('x', 'y')".
std::string call_text(const Ir& ir, const Op& op);
/// "{0,1}{2,3}"; the number of blocks when there are many.
std::string blocks_text(const PartitionTable& table, PartitionId fact);
/// "model.py:31", "?" when nothing is known.
std::string place_text(const Ir& ir, LocationId location);
/// Of the op that wrote the value or passes it; of ops without one, the innermost call's that has one;
/// of variables, where they were made.
LocationId location_of(const Dataflow& flow, const Value& value);

}  // namespace popsr
