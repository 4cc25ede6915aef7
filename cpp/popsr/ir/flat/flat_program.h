// Properties of a program that passes ask for often, in arrays that are kept with the program: schedules of
// its graphs, sizes of its tensors.
//
// A schedule grows when a transaction ends that appended ops, while these are in caches still. Where it is
// behind, because something else changed, it is made afresh when it is asked for next.
#pragma once

#include <cstdint>
#include <deque>
#include <limits>
#include <vector>

#include "popsr/ir/flat/flat_schedule.h"

namespace popsr {

class FlatProgram {
 public:
  explicit FlatProgram(const Ir& ir) : ir_(ir) {}

  /// Present schedule of a graph; valid until the program changes.
  const FlatSchedule& schedule(GraphId graph);
  /// Number of elements of each tensor; valid until the program changes.
  const IdVector<TensorId, std::int64_t>& sizes();

  // Functions for the journal, which sees all changes.
  /// Notes that a graph, or an op of it, changes in another way than by growing.
  void forget(GraphId graph) noexcept {
    if (graph.index() < kept_.size()) kept_[graph].epoch = kNever;
  }
  /// Appends what graphs gained, where nothing else has changed.
  void grow(std::span<const GraphId> graphs) noexcept;
  /// Drops what is kept of tensors from that number on.
  void truncate(std::size_t tensors) noexcept;

 private:
  static constexpr std::uint64_t kNever = std::numeric_limits<std::uint64_t>::max();
  struct Kept {
    std::uint64_t epoch = kNever;  ///< State of the program that it is the schedule of.
    std::size_t ops = 0;           ///< Number of the program's ops then.
    FlatSchedule schedule = {};
  };

  bool is_prefix(const Kept& kept) const {
    return kept.epoch == ir_.epoch() || (kept.epoch != kNever && ir_.grew_from(kept.epoch, kept.ops));
  }
  Kept& kept_of(GraphId graph);
  void update(Kept& kept, GraphId graph);

  const Ir& ir_;
  IdVector<GraphId, Kept, std::deque<Kept>> kept_;  ///< Schedules stay where they are.
  IdVector<TensorId, std::int64_t> sizes_;
};

/// Arrays of a program. Like its table of partitions they are not thread safe.
FlatProgram& flat(const Ir& ir);

}  // namespace popsr
