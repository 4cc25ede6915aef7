// Order between the ops of one graph: data dependencies and in_sequence constraints.
//
// Most questions are about ops of one run of neighbours that depend on each other, or of one chain; the rest
// is answered together, a bit for each first op, in passes over the graph.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "popsr/ir/flat/flat_schedule.h"

namespace popsr {

/// Runs of neighbours in a schedule, in which each op depends on the one before. Construction is O(ops) and
/// looks up no tensors.
class NeighbourRuns {
 public:
  NeighbourRuns(const Ir& ir, const FlatSchedule& schedule);
  /// First position of the last run; 0 for an empty graph.
  std::uint32_t last_run() const;
  /// True only if the op at position `second` depends on the earlier op at `first`.
  bool orders(std::uint32_t first, std::uint32_t second) const { return run_[first] == run_[second]; }

 private:
  std::vector<std::uint32_t> run_;  ///< Number of the run, by position.
};

/// True if the op depends on `before`, its direct predecessor in the schedule.
bool follows(const Ir& ir, const Op& op, const Op& before);

/// Question for must_run_before: two positions in the schedule, first <= second.
struct OrderQuestion {
  std::uint32_t first = 0, second = 0;
};

/// Answers whether the first op of each question must run before the second; `first` is at most `second` in
/// each.
std::vector<bool> must_run_before(const Ir& ir, const Graph& graph, const FlatSchedule& schedule,
                                  std::span<const OrderQuestion> questions);

}  // namespace popsr
