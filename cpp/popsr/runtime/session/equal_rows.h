// Comparison of host rows, bit by bit: of streams when they are fed, of variables when they are written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "popsr/ir/ir.h"
#include "popsr/runtime/execution/stream_io.h"

namespace popsr {

/// The groups of replicas in which equal rows are looked for: all replicas, and the groups of the program's
/// variables and collectives. Equality by chance of other replicas says nothing, and would make a plan of its
/// own for each run.
class RowGroups {
 public:
  explicit RowGroups(const Ir& ir);

  /// The coarsest partition that is known: `known`, joined with the groups inside which `same(r, s)` holds.
  template <class Same>
  PartitionId equal(PartitionId known, const Same& same) const {
    PartitionTable& table = ir_.partitions();
    for (const PartitionId groups : groups_) {
      if (known == table.top()) break;
      if (!table.refines(groups, known) && holds(groups, same)) known = table.join(known, groups);
    }
    return known;
  }

 private:
  template <class Same>
  bool holds(PartitionId groups, const Same& same) const {
    const PartitionTable& table = ir_.partitions();
    const std::span<const std::uint32_t> labels = table.labels(groups);
    const std::span<const Replica> first = table.representatives(groups);
    for (Replica r = 0; r < labels.size(); ++r) {
      if (first[labels[r]] != r && !same(first[labels[r]], r)) return false;
    }
    return true;
  }

  const Ir& ir_;
  std::vector<PartitionId> groups_;  ///< top() first.
};

/// Two replicas that are fed different rows.
struct RowDifference {
  StreamId stream = kNone;
  Replica r = 0, s = 0;
  std::int64_t transfer = 0, element = 0;
};

/// True if the bytes are equal; pointers may be null where there are none, as of tensors without elements.
inline bool same_bytes(const std::byte* a, const std::byte* b, std::size_t n) {
  return n == 0 || std::memcmp(a, b, n) == 0;
}

/// True if the rows of two replicas have the same bits in all transfers.
bool same_rows(const Ir& ir, StreamId stream, const StreamBuffer& buffer, Replica r, Replica s);
/// The first element in which a row differs from the row of the first replica of its block. All NaNs of a
/// dtype are one value; -0 differs from +0.
std::optional<RowDifference> find_difference(const Ir& ir, StreamId stream, const StreamBuffer& buffer,
                                             PartitionId blocks);
/// "rows of replicas 0 and 3 differ at element 2 of transfer 1, got bits 0x3f800000 and 0x0".
std::string to_string(const Ir& ir, const StreamBuffer& buffer, const RowDifference& difference);

}  // namespace popsr
