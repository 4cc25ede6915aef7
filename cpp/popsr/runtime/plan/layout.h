// Memory layout: the storage partition of every buffer and its address.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "popsr/analysis/partition_analysis.h"
#include "popsr/base/containers/slab.h"
#include "popsr/ir/host_bytes.h"
#include "popsr/replica/local_blocks.h"
#include "popsr/runtime/lowering/lowered_program.h"

namespace popsr {

/// Placement of a buffer: block b of this rank's blocks is at base + b * nbytes.
struct Placement {
  std::byte* base = nullptr;
  std::size_t nbytes = 0;  ///< Bytes of one block.
  /// True if the buffer is at the program's initial values, which are never written.
  bool is_shared = false;
};

struct Memory {
  IdVector<BufferId, Placement> placements;
  std::vector<Slab> slabs;
  /// Initial values of the program that variables refer to.
  std::vector<std::shared_ptr<const HostBytes>> shared;
  std::size_t variables = 0, constants = 0, activations = 0;
};

/// Sets Buffer::storage: the meet of every fact the buffer holds in its lifetime (bottom for all without
/// dedup).
void choose_storage(const PartitionAnalysis& facts, LoweredProgram& program, bool dedup);

/// Places activations by liveness in one arena, allocates all memory, and fills constants. Without other
/// ranks a variable that no op writes needs no memory: it refers to the program's initial values until
/// own_memory().
Memory lay_out(const Ir& ir, const LocalBlocks& blocks, const LoweredProgram& program);

/// Gives a variable that refers to the program's initial values memory of its own, with the same values.
/// Addresses taken before still refer to the initial values.
void own_memory(const Ir& ir, const LocalBlocks& blocks, const LoweredProgram& program, BufferId variable,
                Memory& memory);

}  // namespace popsr
