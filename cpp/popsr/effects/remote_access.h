// Entries of remote buffers that ops and graphs reach. Remote memory belongs to no graph: its entries are
// operands that an op does not list.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "popsr/ir/ir.h"

namespace popsr {

/// Entries that the op reaches: one if the offset is known, otherwise all entries of its buffer. Empty for
/// ops without a remote buffer.
std::vector<TensorId> remote_entries(const Ir& ir, const Op& op);

/// Inputs (outputs) of the op, remote entries included.
std::vector<TensorId> all_inputs(const Ir& ir, const Op& op);
std::vector<TensorId> all_outputs(const Ir& ir, const Op& op);
/// Overload without a copy for most ops: returns the op's own list, or fills `room` and returns that.
std::span<const TensorId> all_inputs(const Ir& ir, const Op& op, std::vector<TensorId>& room);
std::span<const TensorId> all_outputs(const Ir& ir, const Op& op, std::vector<TensorId>& room);

/// Remote entries per graph, memoised. Copies of this object share the memo.
class RemoteAccess {
 public:
  explicit RemoteAccess(const Ir& ir) : ir_(ir) {}

  /// Entries that the graph's ops reach, themselves or through the graphs they call, ascending; all entries
  /// for the main graph. The reference lives as long as this object.
  const std::vector<TensorId>& of(GraphId graph) const;
  /// Entries in of(graph) that the graph's ops store to.
  const std::vector<TensorId>& stored(GraphId graph) const;

 private:
  using Memo = std::map<GraphId, std::vector<TensorId>>;
  const std::vector<TensorId>& reached(GraphId graph, bool stores_only, Memo& memo) const;
  std::vector<TensorId> find(GraphId graph, bool stores_only, Memo& memo) const;

  const Ir& ir_;
  std::shared_ptr<Memo> memo_ = std::make_shared<Memo>(), stored_ = std::make_shared<Memo>();
};

}  // namespace popsr
