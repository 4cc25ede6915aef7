// Handles into an Ir: they stay valid for the life of the Ir.
#pragma once

#include "popsr/base/id.h"

namespace popsr {

struct GraphTag {
  static constexpr std::uint32_t kDefault = 0;  ///< Default id: the main graph.
};
using TensorId = Id<struct TensorTag>;
using OpId = Id<struct OpTag>;
using GraphId = Id<GraphTag>;
using StreamId = Id<struct StreamTag>;
using RemoteId = Id<struct RemoteTag>;

inline constexpr GraphId kMainGraph{0};

}  // namespace popsr
