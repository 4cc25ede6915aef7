// Precision of mode "popart" on values whose exact partition is known.
#pragma once

#include <cstddef>
#include <vector>

#include "popsr/replica/partition.h"

namespace popsr::test {

/// Facts of the reference, compared with exact ones.
struct PopartScore {
  double values = 0, exact = 0, wrong = 0;
  double pairs = 0, proved = 0;  ///< Pairs of replicas that hold the same value.

  void add(PartitionTable& table, bool popart, PartitionId real) {
    const PartitionId claim = popart ? table.top() : table.bottom();
    ++values;
    exact += claim == real ? 1 : 0;
    wrong += table.refines(claim, real) ? 0 : 1;
    pairs += equal_pairs(table, real);
    proved += equal_pairs(table, table.meet(claim, real));
  }
  static double equal_pairs(PartitionTable& table, PartitionId id) {
    std::vector<double> sizes(static_cast<std::size_t>(table.num_blocks(id)));
    for (const std::uint32_t block : table.labels(id)) ++sizes[block];
    double pairs = 0;
    for (const double size : sizes) pairs += size * (size - 1) / 2;
    return pairs;
  }
};

}  // namespace popsr::test
