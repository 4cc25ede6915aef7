// Orders that every schedule of a graph must keep.
#pragma once

#include <cstdint>
#include <vector>

#include "popsr/ir/ir.h"

namespace popsr {

/// Dependencies between the ops of a graph from position `first` on. An op must follow the writers of all
/// that it reads or writes, the readers of all that it writes (tensors in place, remote entries, streams,
/// printed text, also through called graphs), and ops ordered before it explicitly. Indices are positions
/// in the present schedule minus `first`.
class OpOrder {
 public:
  OpOrder(const Ir& ir, GraphId graph, std::uint32_t first = 0);

  struct Edge {
    std::uint32_t before = 0;
    /// True if the dependency is through something read or written; false: explicit order alone.
    bool data = false;
  };
  const std::vector<Edge>& before(std::uint32_t index) const { return edges_[index]; }
  std::size_t size() const { return edges_.size(); }

 private:
  std::vector<std::vector<Edge>> edges_;
};

}  // namespace popsr
