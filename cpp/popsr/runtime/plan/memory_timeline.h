// Memory over time: for each step of a plan the bytes of its arena that hold values.
#pragma once

#include <cstddef>
#include <vector>

#include "popsr/ir/ids.h"
#include "popsr/runtime/plan/plan.h"

namespace popsr {

/// One step; see Liveness.
struct MemoryStep {
  OpId op = kNone;         ///< None for copies.
  std::size_t live = 0;    ///< Bytes of the arena that hold values.
  std::size_t extent = 0;  ///< End of the last of these bytes: the arena must be as large.
};

/// A value in the arena, from step `first` to step `last`.
struct ArenaValue {
  TensorId tensor = kNone;  ///< The first that lives there.
  std::size_t offset = 0, bytes = 0, first = 0, last = 0;
};

struct MemoryTimeline {
  std::vector<MemoryStep> steps;
  std::vector<ArenaValue> values;
  std::size_t arena = 0;        ///< As allocated; the largest extent.
  std::size_t temporaries = 0;  ///< That instructions keep besides it.
};

MemoryTimeline memory_timeline(const Plan& plan);

}  // namespace popsr
