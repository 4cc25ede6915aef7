// Deliberate faults of the solver: a test suite that does not detect one of them is too weak.
#pragma once

#include <cstdint>

namespace popsr {

enum class SolverFault : std::uint8_t {
  kNone,
  kPartsMoved,      ///< A graph leaves the facts of its inputs' parts at other parts.
  kOneIteration,    ///< A loop ends with the facts of its first iteration.
  kOddSwaps,        ///< A loop whose facts come back ends one iteration off.
  kOwnNoise,        ///< Each iteration uses the seeds of its own facts instead of the loop's.
  kOtherBranch,     ///< A known condition leads to the other branch.
  kStaleCondition,  ///< A known condition stays known when it is written.
  kSameMemory,      ///< Both branches read the same memory, whatever was stored.
  kSameAttributes,  ///< Ops of one definition compute the same from the same operands.
  kSameNoise,       ///< Both branches draw the same noise.
};

}  // namespace popsr
