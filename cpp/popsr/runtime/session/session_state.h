// The state of a session, for its own files alone.
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
    /// Those with a row per replica; of `large` those whose rows were equal so far.
    std::vector<StreamId> small = {}, large = {};
    std::vector<PartitionId> same_rows = {};  ///< Of `small`, of the run at hand.
    std::vector<PartitionId> previous_rows =
        {};  ///< PlanKey::rows of the run before; empty before the first.
    std::vector<std::int64_t> positions = {};
    ComparedRows compared;
    IdVector<StreamId, StreamRows> rows = {};  ///< That this rank has.
  };
  /// Variables and shards, then remote entries.
  struct Variables {
    std::vector<TensorId> ids;
    std::unordered_map<TensorId, std::size_t> index;  ///< Into `ids` and the lists below.
    std::vector<PartitionId> start;  ///< Replicas that hold the same when the next run starts.
    PiecesByInput pieces;            ///< The same of parts of them.
    std::vector<PartitionId> home;   ///< What the host wrote last: the most that `start` may be.
    bool is_whole = true;            ///< False after a run that ended in its middle: `start` is not known.
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
  std::optional<PlanCache> plans;            ///< Set when the session starts.
  std::unordered_set<OpId> reported_labels;  ///< Ops whose stray labels the host was told of.
  std::uint64_t runs = 0;
  std::chrono::nanoseconds time{0};  ///< Of all runs, with SessionOptions::profile.
};

}  // namespace popsr
