// Memory over time: for each step of a plan the bytes of its arena that hold values.
#pragma once

#include <cstddef>
#include <vector>

#include "popsr/ir/ids.h"
#include "popsr/runtime/plan/plan.h"

namespace popsr {

/// Memory in use at one step; see Liveness.
struct MemoryStep {
  OpId op = kNone;         ///< Op of the step; kNone for copies.
  std::size_t live = 0;    ///< Bytes of the arena that hold values.
  std::size_t extent = 0;  ///< End of the last of these bytes: the least size of the arena.
};

/// A value in the arena, from step `first` to step `last`.
struct ArenaValue {
  TensorId tensor = kNone;  ///< First tensor whose value is there.
  std::size_t offset = 0, bytes = 0, first = 0, last = 0;
};

struct MemoryTimeline {
  std::vector<MemoryStep> steps;
  std::vector<ArenaValue> values;
  std::size_t arena = 0;        ///< Size of the arena: the largest extent.
  std::size_t temporaries = 0;  ///< Bytes of temporaries that instructions keep outside the arena.
};

MemoryTimeline memory_timeline(const Plan& plan);

}  // namespace popsr
