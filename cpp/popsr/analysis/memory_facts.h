// Facts of the memory of one graph's tensors at one point of time.
//
// A fact belongs to memory, not to tensors: an allocation has one, until a view writes a part of it; then it
// has disjoint boxes with a fact each, until they agree or are overwritten. Reading a tensor meets the facts
// of the boxes that it touches; writing one replaces them where its elements are known exactly. Making a view
// is neither.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "popsr/effects/memory.h"

namespace popsr {

class MemoryFacts {
 public:
  /// All tensors of the graph start with `initial`.
  MemoryFacts(const Ir& ir, GraphId graph, PartitionId initial);

  // Not of remote entries, which are not memory of a graph. `slot`: the tensor's Ir::storage_index.
  PartitionId read(TensorId tensor, std::uint32_t slot) const {
    return shared_ ? read_shared(tensor) : whole_[slot];
  }
  void write(TensorId tensor, std::uint32_t slot, PartitionId fact) {
    if (shared_) {
      write_shared(tensor, fact);
    } else {
      whole_[slot] = fact;
    }
  }
  PartitionId read(TensorId tensor) const { return read(tensor, ir_->storage_index(tensor)); }
  void write(TensorId tensor, PartitionId fact) { write(tensor, ir_->storage_index(tensor), fact); }
  PartitionId read(const Region& region) const;

  /// Results of read() for each tensor of the graph that is its own storage, by Tensor::index.
  std::vector<PartitionId> all() &&;

 private:
  struct Piece {
    Box box;
    PartitionId fact;
  };
  PartitionId read_shared(TensorId tensor) const;
  void write_shared(TensorId tensor, PartitionId fact);
  void write_region(const Region& region, PartitionId fact);
  static constexpr std::size_t kMaxPieces = 32;  ///< More than a part has, so that order hardly matters.
  /// Keeps at most kMaxPieces pieces: equal neighbours become one, then those that fit best are met.
  void tidy(std::vector<Piece>& pieces) const;

  const Ir* ir_;
  GraphId graph_;
  bool shared_;                     ///< The graph has views.
  std::vector<PartitionId> whole_;  ///< By Tensor::index; of allocations that are not in pieces.
  std::unordered_map<TensorId, std::vector<Piece>> pieces_;  ///< By root. They cover it.
};

}  // namespace popsr
