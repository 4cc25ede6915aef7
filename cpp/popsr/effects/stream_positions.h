// Positions of each replica in the streams to the device. A replica that skips a load inside a conditional
// falls behind the others and reads another element the next time: the position is state that no tensor
// holds.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "popsr/ir/ir.h"

namespace popsr {

/// Stream that the op loads from; nullopt for other ops.
std::optional<StreamId> loaded_stream(const Ir& ir, const Op& op);
/// Stream that the op stores to; nullopt for other ops.
std::optional<StreamId> stored_stream(const Ir& ir, const Op& op);

class StreamPositions {
 public:
  explicit StreamPositions(const Ir& ir);

  /// Streams whose positions may differ between replicas because a branch of a conditional loads them, and
  /// that the graph's ops load, themselves or through the graphs they call, ascending; all such streams for
  /// the main graph. The reference lives as long as this object.
  const std::vector<StreamId>& of(GraphId graph) const;

 private:
  std::vector<StreamId> reached(GraphId graph) const;

  const Ir& ir_;
  std::vector<StreamId> diverging_;
  mutable std::map<GraphId, std::vector<StreamId>> memo_;
};

}  // namespace popsr
