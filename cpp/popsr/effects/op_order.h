// Orders that every schedule of a graph must keep.
#pragma once

#include <cstdint>
#include <vector>

#include "popsr/ir/ir.h"

namespace popsr {

/// The ops of a graph, from position `first` on, and those that each must follow in any schedule: who wrote
/// what it reads or writes, who read what it writes (tensors in place, remote entries, streams, printed text,
/// also through called graphs), and explicit order. Indices are positions in the present schedule minus
/// `first`.
class OpOrder {
 public:
  OpOrder(const Ir& ir, GraphId graph, std::uint32_t first = 0);

  struct Edge {
    std::uint32_t before = 0;
    bool data = false;  ///< Through something read or written; false: by explicit order alone.
  };
  const std::vector<Edge>& before(std::uint32_t index) const { return edges_[index]; }
  std::size_t size() const { return edges_.size(); }

 private:
  std::vector<std::vector<Edge>> edges_;
};

}  // namespace popsr
