// State that a run reads as the previous run left it. Accumulators that every run overwrites first are not
// among it, and their contents between runs do not matter.
//
// A summary for each graph and set of inputs that hold zeros, composed at its calls. Zeros are followed
// because a running mean overwrites its accumulator where its counter is 0, and a counter that starts as 0
// and is cleared in each run is 0 when the next one starts. In doubt state counts as read.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "popsr/analysis/memory/memory_parts.h"
#include "popsr/effects/written_inputs.h"
#include "popsr/ir/calls/called_graphs.h"
#include "popsr/ir/op_def.h"

namespace popsr {

class StateReads {
 public:
  /// Analyses the program; `state` has the variables and shards of the main graph.
  StateReads(const Ir& ir, std::vector<TensorId> state);

  /// False for a variable, shard or remote entry that every run overwrites in full, on all replicas, before
  /// it reads any of it.
  bool reads(TensorId state) const;

 private:
  /// Effect of a graph on its inputs, by index; for the main graph, on its state.
  struct Summary {
    std::vector<bool> reads;  ///< True per input that is read, at least in part, before it is overwritten.
    std::vector<bool> overwrites;  ///< True per input that is overwritten as a whole.
    std::vector<bool> zeros;       ///< True per input that holds zeros when the graph ends.
    std::vector<bool> zero_outputs;
    /// Entries of remote buffers that are read before they are overwritten, and that are overwritten.
    std::set<TensorId> entry_reads, entry_overwrites;
  };
  /// State of the walk over one graph's ops.
  struct Walk {
    Summary summary;
    /// Part of each input that is not overwritten yet, by storage.
    std::map<TensorId, std::pair<std::uint32_t, PartId>> given;
    std::set<TensorId> zeros;  ///< Storages that hold zeros.
  };

  Summary summarise(GraphId graph, const std::vector<TensorId>& inputs, const std::vector<bool>& zeros);
  const Summary& of(GraphId graph, const std::vector<bool>& zeros);
  Summary of_loop(const Op& op, GraphId body, std::vector<bool> zeros);
  void visit(Walk& walk, const Op& op);
  void visit_remote(Walk& walk, const Op& op) const;
  void visit_graphs(Walk& walk, const Op& op);
  void read(Walk& walk, TensorId tensor) const;
  void read_entry(Walk& walk, TensorId entry) const;
  void write(Walk& walk, TensorId tensor, bool zeros);
  bool is_zero(const Walk& walk, TensorId tensor) const;
  bool starts_zero(TensorId state) const;

  const Ir& ir_;
  std::vector<TensorId> state_;
  WrittenInputs written_;
  MemoryParts parts_;
  std::map<std::pair<std::uint32_t, std::vector<bool>>, Summary> memo_;
  Summary main_;
};

}  // namespace popsr
