// The entries of remote buffers that ops and graphs reach. Remote memory belongs to no graph: its entries are
// operands that an op does not list.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "popsr/ir/ir.h"

namespace popsr {

/// Entries that the op reaches: one when the offset is known, else all of its buffer. Empty for other ops.
std::vector<TensorId> remote_entries(const Ir& ir, const Op& op);

/// The op's inputs and outputs, remote entries included.
std::vector<TensorId> all_inputs(const Ir& ir, const Op& op);
std::vector<TensorId> all_outputs(const Ir& ir, const Op& op);
/// The same without a copy for most ops: the op's own list, or what is put into `room`.
std::span<const TensorId> all_inputs(const Ir& ir, const Op& op, std::vector<TensorId>& room);
std::span<const TensorId> all_outputs(const Ir& ir, const Op& op, std::vector<TensorId>& room);

/// Copies share what they found.
class RemoteAccess {
 public:
  explicit RemoteAccess(const Ir& ir) : ir_(ir) {}

  /// Entries that the graph's ops reach, themselves or through the graphs they call; ascending. All entries
  /// for the main graph. The reference lives as long as this object.
  const std::vector<TensorId>& of(GraphId graph) const;
  /// The entries of these that the graph's ops store.
  const std::vector<TensorId>& stored(GraphId graph) const;

 private:
  using Memo = std::map<GraphId, std::vector<TensorId>>;
  const std::vector<TensorId>& reached(GraphId graph, bool stores_only, Memo& memo) const;
  std::vector<TensorId> find(GraphId graph, bool stores_only, Memo& memo) const;

  const Ir& ir_;
  std::shared_ptr<Memo> memo_ = std::make_shared<Memo>(), stored_ = std::make_shared<Memo>();
};

}  // namespace popsr
