// Memory layout: the storage partition of every buffer and its address.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "popsr/analysis/partition_analysis.h"
#include "popsr/base/slab.h"
#include "popsr/ir/host_bytes.h"
#include "popsr/replica/local_blocks.h"
#include "popsr/runtime/lowering/lowered_program.h"

namespace popsr {

/// Placed buffers; block b of a buffer, of those that the rank has, is at base + b * nbytes.
struct Placement {
  std::byte* base = nullptr;
  std::size_t nbytes = 0;  ///< Of one block.
  bool is_shared = false;  ///< At the program's initial values, which are never written.
};

struct Memory {
  IdVector<BufferId, Placement> placements;
  std::vector<Slab> slabs;
  std::vector<std::shared_ptr<const HostBytes>> shared;  ///< Initial values that variables are at.
  std::size_t variables = 0, constants = 0, activations = 0;
};

/// Sets Buffer::storage: the meet of every fact the buffer holds in its lifetime (bottom for all without
/// dedup).
void choose_storage(const PartitionAnalysis& facts, LoweredProgram& program, bool dedup);

/// Plans activations by liveness in one arena, allocates everything, and fills constants. A variable that no
/// op writes needs no memory on a process alone: it is at the program's initial values until own_memory().
Memory lay_out(const Ir& ir, const LocalBlocks& blocks, const LoweredProgram& program);

/// Gives a variable that is at the program's initial values memory of its own, with the same values. What has
/// its address from before reads the initial values.
void own_memory(const Ir& ir, const LocalBlocks& blocks, const LoweredProgram& program, BufferId variable,
                Memory& memory);

}  // namespace popsr
