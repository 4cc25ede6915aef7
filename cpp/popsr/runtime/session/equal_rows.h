// Bitwise comparison of host rows: of streams when they are fed, of variables when they are written.
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

/// Groups of replicas within which equal rows are looked for: all replicas, and the groups of the program's
/// variables and collectives. Rows of other replicas that are equal by chance are ignored; they would lead
/// to a new plan in each run.
class RowGroups {
 public:
  explicit RowGroups(const Ir& ir);

  /// Coarsest partition known: `known`, joined with the groups inside which `same(r, s)` holds.
  template <class Same>
  PartitionId equal(PartitionId known, const Same& same) const {
    PartitionTable& table = ir_.partitions();
    for (const PartitionId groups : groups_) {
      if (known == table.top()) break;
      if (!table.refines(groups, known) && are_equal(groups, same)) known = table.join(known, groups);
    }
    return known;
  }

 private:
  template <class Same>
  bool are_equal(PartitionId groups, const Same& same) const {
    const PartitionTable& table = ir_.partitions();
    const std::span<const std::uint32_t> labels = table.labels(groups);
    const std::span<const Replica> first = table.representatives(groups);
    for (Replica r = 0; r < labels.size(); ++r) {
      if (first[labels[r]] != r && !same(first[labels[r]], r)) return false;
    }
    return true;
  }

  const Ir& ir_;
  std::vector<PartitionId> groups_;  ///< Candidate groups; top() first.
};

/// Two replicas whose rows of a stream differ, with the first difference.
struct RowDifference {
  StreamId stream = kNone;
  Replica r = 0, s = 0;
  std::int64_t transfer = 0, element = 0;
};

/// True if n bytes are equal; pointers may be null when n is 0, as for tensors without elements.
inline bool same_bytes(const std::byte* a, const std::byte* b, std::size_t n) {
  return n == 0 || std::memcmp(a, b, n) == 0;
}

/// True if the rows of two replicas have the same bits in all transfers.
bool same_rows(const Ir& ir, StreamId stream, const StreamBuffer& buffer, Replica r, Replica s);
/// Finds the first element in which a row differs from the row of the first replica of its block. All NaNs
/// of a dtype are one value; -0 differs from +0.
std::optional<RowDifference> find_difference(const Ir& ir, StreamId stream, const StreamBuffer& buffer,
                                             PartitionId blocks);
/// Text such as "rows of replicas 0 and 3 differ at element 2 of transfer 1, got bits 0x3f800000 and 0x0".
std::string to_string(const Ir& ir, const StreamBuffer& buffer, const RowDifference& difference);

}  // namespace popsr
