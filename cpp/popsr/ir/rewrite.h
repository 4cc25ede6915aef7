// Schedules that change after their ops were made: ops move, and several become one merged op.
//
// A merged op is in the schedule instead of its parts. The parts stay what they were (definition, attributes,
// operands, location, noise index, seeds) and are asked whenever one tensor is looked at; nobody lists them.
// Ir::replace_schedule is the only way there: it refuses a schedule that breaks an order.
#pragma once

#include <cstdint>
#include <vector>

#include "popsr/ir/ir.h"

namespace popsr {

/// The graph's ops in the order of its schedule, merged ones as their parts.
std::vector<OpId> single_ops(const Ir& ir, GraphId graph);

/// What the ops of a graph, from position `first` on, must follow in any schedule: who wrote what they
/// read or write, who read what they write (tensors in place, remote entries, streams, printed text, also
/// through called graphs), and explicit order. Indices are positions in the present schedule minus `first`.
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
