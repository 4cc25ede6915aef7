// Memory layout: the storage partition of every buffer and its address.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "popsr/analysis/partition_analysis.h"
#include "popsr/replica/local_blocks.h"
#include "popsr/runtime/lowering/lowered_program.h"

namespace popsr {

/// Memory aligned to 64 bytes; zeroed.
class Slab {
 public:
  explicit Slab(std::size_t bytes);
  std::byte* data() const { return data_.get(); }
  std::size_t size() const { return size_; }

 private:
  struct Free {
    std::size_t bytes = 0;
    void operator()(std::byte* data) const;
  };
  std::size_t size_ = 0;
  std::unique_ptr<std::byte, Free> data_;
};

/// Placed buffers; block b of a buffer, of those that the rank has, is at base + b * nbytes.
struct Placement {
  std::byte* base = nullptr;
  std::size_t nbytes = 0;  ///< Of one block.
};

struct Memory {
  IdVector<BufferId, Placement> placements;
  std::vector<Slab> slabs;
  std::size_t variables = 0, constants = 0, activations = 0;
};

/// Sets Buffer::storage: the meet of every fact the buffer holds in its lifetime (bottom for all without
/// dedup).
void choose_storage(const PartitionAnalysis& facts, LoweredProgram& program, bool dedup);

/// Plans activations by liveness in one arena, allocates everything, and fills constants.
Memory lay_out(const Ir& ir, const LocalBlocks& blocks, const LoweredProgram& program);

}  // namespace popsr
