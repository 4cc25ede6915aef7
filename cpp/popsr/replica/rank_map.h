// Processes (ranks) that run a program together, and the consecutive replicas that each of them owns.
#pragma once

#include <algorithm>
#include <cstdint>

#include "popsr/replica/partition.h"

namespace popsr {

/// Assignment of replicas to ranks. If the ranks do not divide the replicas, the first ranks own one more.
/// Each rank owns at least one.
struct RankMap {
  std::int64_t replicas = 1;
  std::int64_t ranks = 1;
  std::int64_t rank = 0;  ///< Number of this process.

  bool is_alone() const { return ranks == 1; }
  Replica begin(std::int64_t of) const {
    return static_cast<Replica>(of * (replicas / ranks) + std::min(of, replicas % ranks));
  }
  Replica end(std::int64_t of) const { return begin(of + 1); }
  Replica begin() const { return begin(rank); }
  Replica end() const { return end(rank); }
  bool owns(Replica replica) const { return begin() <= replica && replica < end(); }
  std::int64_t owner(Replica replica) const {
    const std::int64_t more = replicas % ranks, size = replicas / ranks, r = replica;
    return r < more * (size + 1) ? r / (size + 1) : more + (r - more * (size + 1)) / size;
  }
};

}  // namespace popsr
