// Order between the ops of one graph: data dependencies and in_sequence constraints.
//
// Most questions are about ops of one run of neighbours that depend on each other, or of one chain; the rest
// is answered together, a bit for each first op, in passes over the graph.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "popsr/ir/ir.h"

namespace popsr {

/// Runs of neighbours in a schedule of which each depends on the one before. O(ops), no look-ups of tensors.
class NeighbourRuns {
 public:
  NeighbourRuns(const Ir& ir, const Graph& graph);
  /// The first position of the last run; 0 of an empty graph.
  std::uint32_t last_run() const;
  /// True only if the op at position `second` depends on the earlier one at `first`.
  bool orders(std::uint32_t first, std::uint32_t second) const { return run_[first] == run_[second]; }

 private:
  std::vector<std::uint32_t> run_;  ///< By position: the number of the run.
};

/// True if the op depends on `before`, the op that the schedule has right before it.
bool follows(const Ir& ir, const Op& op, const Op& before);

/// Two ops, by position: must the first run before the second?
struct OrderQuestion {
  std::uint32_t first = 0, second = 0;
};

/// Answers to all questions; `first` is at most `second` in each.
std::vector<bool> must_run_before(const Ir& ir, const Graph& graph, std::span<const OrderQuestion> questions);

}  // namespace popsr
