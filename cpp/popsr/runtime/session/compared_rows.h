// Rows of streams that are compared between replicas, also those that other ranks are fed.
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
  /// `link`: null without other ranks.
  ComparedRows(const Ir& ir, RankLink* link) : ir_(ir), link_(link) {}

  /// Takes the rows that this rank is fed; in a run, before the rest.
  void set(std::span<const StreamBuffer> buffers);
  /// Brings the rows of all ranks, which have a row per replica. On all ranks at once.
  void gather(std::span<const StreamId> streams);
  /// True if the rows of all replicas have the same bits. On all ranks at once; gathers nothing.
  bool are_equal(StreamId stream) const;

  /// [transfers, replicas, *shape] of a stream that was gathered; without other ranks of each.
  const StreamBuffer& operator[](StreamId stream) const { return rows_[stream.index()]; }

 private:
  const Ir& ir_;
  RankLink* link_;
  std::vector<StreamBuffer> local_, rows_;
  IdVector<StreamId, std::vector<std::byte>> gathered_;
};

}  // namespace popsr
