// Rows of streams that are compared between replicas, including the rows that other ranks are fed.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "popsr/ir/ir.h"
#include "popsr/runtime/execution/stream_io.h"
#include "popsr/runtime/ranks/rank_link.h"

namespace popsr {

class ComparedRows {
 public:
  /// Constructs an empty set; `link` is null when there are no other ranks.
  ComparedRows(const Ir& ir, RankLink* link) : ir_(ir), link_(link) {}

  /// Sets the rows that this rank is fed. Called first in a run.
  void set(std::span<const StreamBuffer> buffers);
  /// Gathers the rows of all ranks; these streams have one row per replica. Collective: all ranks call it
  /// at once.
  void gather(std::span<const StreamId> streams);
  /// True if the rows of all replicas have the same bits. Collective, but gathers no rows.
  bool are_equal(StreamId stream) const;

  /// Rows [transfers, replicas, *shape] of a gathered stream; without other ranks, of any stream.
  const StreamBuffer& operator[](StreamId stream) const { return rows_[stream.index()]; }

 private:
  const Ir& ir_;
  RankLink* link_;
  std::vector<StreamBuffer> local_, rows_;
  IdVector<StreamId, std::vector<std::byte>> gathered_;
};

}  // namespace popsr
