// Ops of one graph in the order of its schedule, in arrays. The objects and lists of a program lie far apart,
// and a pass over them waits for memory most of its time; passes that ask who reads and writes what read a
// few megabytes in a row instead. FlatProgram keeps one for each graph.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "popsr/ir/ir.h"

namespace popsr {

enum class CollectiveOp : std::uint8_t;

/// Properties of an op of a schedule.
struct FlatTraits {
  bool alone = false;     ///< True if its own lists have all that it reads and writes, and it is not merged.
  bool merged = false;    ///< True if it stands for its parts.
  bool modifies = false;  ///< True if it may write inputs in place.
  bool view = false;      ///< True if it makes a view.
  bool ordered = false;   ///< True if it is explicitly ordered after others.
  bool floats = false;    ///< True if all outputs are floating.
  /// True if outputs are equal where all inputs are: it stands alone, has the default partition rule, takes
  /// all inputs into account, loads nothing, and rounds nothing to a narrow float.
  bool meets = false;
  CollectiveOp reduction = {};  ///< Reduction of a collective with groups, if it reduces.
};

/// An op of a schedule.
struct FlatOp : FlatTraits {
  const OpDef* def = nullptr;
  OpId id = kNone;
  std::uint32_t inputs = 0, outputs = 0;  ///< Begin of its lists in FlatSchedule.
  std::uint32_t groups = kNone;  ///< Number of a collective's groups in FlatSchedule; kNone for other ops.
};

class FlatSchedule {
 public:
  std::size_t size() const { return ops_.size(); }
  const FlatOp& operator[](std::size_t at) const { return ops_[at]; }
  /// Op::inputs and Op::outputs of the op at a position; for a merged op, the ones of all its parts.
  std::span<const TensorId> inputs(std::size_t at) const {
    return std::span(lists_).subspan(ops_[at].inputs, ops_[at].outputs - ops_[at].inputs);
  }
  std::span<const TensorId> outputs(std::size_t at) const {
    const std::size_t end = at + 1 < ops_.size() ? ops_[at + 1].inputs : lists_.size();
    return std::span(lists_).subspan(ops_[at].outputs, end - ops_[at].outputs);
  }
  /// Groups of the collectives, few of them twice.
  std::span<const ReplicaGrouping> groups() const { return groups_; }

  /// Appends the ops that the graph has beyond those that are there.
  void grow(const Ir& ir, GraphId graph);

 private:
  void add(const Ir& ir, const Op& op);
  std::uint32_t number_of_groups(const Ir& ir, const Op& op);

  std::vector<FlatOp> ops_;
  std::vector<ReplicaGrouping> groups_;
  std::vector<TensorId> lists_;  ///< Inputs and outputs of each op.
};

}  // namespace popsr
