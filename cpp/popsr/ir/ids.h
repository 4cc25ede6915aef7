// Handles into an Ir. Plain integers: they stay valid for the life of the Ir.
#pragma once

#include <cstdint>
#include <limits>

namespace popsr {

using TensorId = std::uint32_t;
using OpId = std::uint32_t;
using StreamId = std::uint32_t;
using RemoteId = std::uint32_t;

/// A struct of its own, so that an attribute can hold a graph.
struct GraphId {
  std::uint32_t value = 0;
  bool operator==(const GraphId&) const = default;
};

inline constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();
inline constexpr GraphId kMainGraph{0};

}  // namespace popsr
