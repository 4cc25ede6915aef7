// Positions of each replica in the streams to the device. A replica that skips a load inside a conditional
// stays behind the others, and reads another element the next time: the position is state that no tensor
// holds.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "popsr/ir/ir.h"

namespace popsr {

/// The stream that the op loads, if it loads one.
std::optional<StreamId> loaded_stream(const Ir& ir, const Op& op);
/// The stream that the op stores to, if it stores to one.
std::optional<StreamId> stored_stream(const Ir& ir, const Op& op);

class StreamPositions {
 public:
  explicit StreamPositions(const Ir& ir);

  /// Streams whose positions may part because a branch of a conditional loads them, and that the graph's ops
  /// load, themselves or through the graphs they call; ascending. All such streams for the main graph. The
  /// reference lives as long as this object.
  const std::vector<StreamId>& of(GraphId graph) const;

 private:
  std::vector<StreamId> reached(GraphId graph) const;

  const Ir& ir_;
  std::vector<StreamId> diverging_;
  mutable std::map<GraphId, std::vector<StreamId>> memo_;
};

}  // namespace popsr
