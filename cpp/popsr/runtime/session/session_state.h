// State of a session; included by the session's own files alone.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "popsr/runtime/execution/stream_rows.h"
#include "popsr/runtime/session/compared_rows.h"
#include "popsr/runtime/session/equal_rows.h"
#include "popsr/runtime/session/plan_cache.h"
#include "popsr/runtime/session/session.h"

namespace popsr {

struct Session::State {
  struct Streams {
    /// Streams with a row per replica. `large` keeps only the streams whose rows were equal so far.
    std::vector<StreamId> small = {}, large = {};
    /// Partition of the rows of each stream in `small`, in the current run.
    std::vector<PartitionId> same_rows = {};
    /// PlanKey::rows of the previous run; empty before the first.
    std::vector<PartitionId> previous_rows = {};
    std::vector<std::int64_t> positions = {};
    ComparedRows compared;
    IdVector<StreamId, StreamRows> rows = {};  ///< Rows of each stream that this rank has.
  };
  /// Variables and shards, then remote entries, as parallel lists.
  struct Variables {
    std::vector<TensorId> ids;
    std::unordered_map<TensorId, std::size_t> index;  ///< Index into `ids` and the lists below.
    /// Partition of replicas that hold the same value when the next run starts.
    std::vector<PartitionId> start;
    PiecesByInput pieces;  ///< Partitions by part, like `start`.
    /// Partition of the rows that the host wrote last; `start` is never coarser.
    std::vector<PartitionId> home;
    bool is_whole = true;  ///< False after a run that ended in its middle: `start` is then unknown.
  };

  State(const Ir& ir, std::uint64_t its_seed, RankLink* link)
      : seed(its_seed), groups(ir), streams{.compared = ComparedRows(ir, link)} {
    const RankMap ranks = link == nullptr ? RankMap{ir.replication()} : link->map(ir.replication());
    for (const StreamId id : ids<StreamId>(ir.num_streams())) streams.rows.emplace_back(ir.stream(id), ranks);
  }
  std::uint64_t seed;
  RowGroups groups;
  Streams streams;
  Variables variables;
  std::optional<PlanCache> plans;            ///< Compiled plans; set when the session starts.
  std::unordered_set<OpId> reported_labels;  ///< Ops whose invalid labels were reported to the host.
  std::uint64_t runs = 0;
  std::chrono::nanoseconds time{0};  ///< Time of all runs, with SessionOptions::profile.
};

}  // namespace popsr
