// Facts of the memory of one graph's tensors at one point of time.
//
// A fact belongs to memory, not to tensors: an allocation has one fact, until a view writes a part of it;
// then it has disjoint boxes with a fact each, until these agree or are overwritten. Reading a tensor meets
// the facts of the boxes that it touches; writing one replaces them where its elements are known exactly.
// Making a view neither reads nor writes.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "popsr/analysis/fact_store.h"
#include "popsr/analysis/memory/pieces.h"
#include "popsr/base/containers/shared_vector.h"
#include "popsr/effects/memory.h"

namespace popsr {

class MemoryFacts {
 public:
  /// Gives all tensors of the graph the fact `initial`.
  MemoryFacts(const Ir& ir, GraphId graph, PartitionId initial);

  // Reads and writes facts of tensors, not of remote entries, which are not memory of a graph. `slot` is
  // the tensor's Ir::storage_index.
  PartitionId read(TensorId tensor, std::uint32_t slot) const {
    return shared_ ? read_shared(tensor) : whole_[slot];
  }
  void write(TensorId tensor, std::uint32_t slot, PartitionId fact) {
    if (shared_) {
      write_shared(tensor, fact);
    } else {
      whole_.set(slot, fact);
    }
  }
  PartitionId read(TensorId tensor) const { return read(tensor, ir_->storage_index(tensor)); }
  void write(TensorId tensor, PartitionId fact) { write(tensor, ir_->storage_index(tensor), fact); }
  PartitionId read(const Region& region) const;

  /// Facts of a tensor's parts, in its own coordinates; empty if all parts have one fact.
  Pieces pieces(TensorId tensor) const;
  /// Facts like pieces(), but one piece if all parts have one fact.
  Pieces cover(TensorId tensor) const;
  void write(TensorId tensor, const Pieces& pieces);
  void write(std::span<const WrittenPieces> written) {
    for (const auto& [tensor, pieces] : written) write(tensor, pieces);
  }
  /// True if some memory has facts by part.
  bool has_pieces() const { return !pieces_.empty(); }

  /// Results of read() for each tensor of the graph that is its own storage, by Tensor::index.
  std::vector<PartitionId> all() const;

  /// Adds tensors that the graph gained; they start with `initial`.
  void grow(PartitionId initial);

 private:
  PartitionId read_shared(TensorId tensor) const;
  void write_shared(TensorId tensor, PartitionId fact);
  void write_region(const Region& region, PartitionId fact);

  const Ir* ir_;
  GraphId graph_;
  bool shared_;                      ///< True if the graph has views, or memory has facts by part.
  SharedVector<PartitionId> whole_;  ///< Facts by Tensor::index of the storage; unused for views.
  std::unordered_map<TensorId, Pieces> pieces_;  ///< Facts by part, by root; whole_ has their meet.
};

}  // namespace popsr
