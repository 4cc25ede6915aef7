// The memory that programs differentiate by: variables, and what hands them to the graphs whose gradients are
// taken. It holds forward values, so a gradient that is written there is an update.
#pragma once

#include <map>
#include <optional>
#include <unordered_map>
#include <vector>

#include "popsr/ir/calls/called_graphs.h"
#include "popsr/ir/ir.h"

namespace popsr {

class Differentiated {
 public:
  explicit Differentiated(const Ir& ir);

  /// True if autodiff made no graph.
  bool empty() const { return sources_.empty(); }
  bool contains(TensorId storage) const { return contained_[storage]; }
  /// The results of declared() that are known, by storage.
  std::map<TensorId, PartitionId> all() const;
  /// All storages of which contains() is true.
  const std::vector<TensorId>& storages() const { return storages_; }
  /// Replicas that are declared to hold the same value there; nullopt for what is not a variable's.
  std::optional<PartitionId> declared(TensorId storage) const;

 private:
  struct Caller {
    OpId op;
    CalledGraph called;
  };

  void list_callers();
  void add(TensorId tensor, TensorId from);
  void add_arguments(TensorId input);
  void add_origins(TensorId tensor);
  std::optional<PartitionId> declared_by_sources(TensorId storage) const;

  const Ir& ir_;
  IdVector<TensorId, bool> contained_;
  IdVector<GraphId, std::vector<Caller>> callers_;  ///< Ops that run the graph.
  IdVector<TensorId, std::uint32_t> index_;         ///< Of inputs, among those of their graph.
  mutable std::unordered_map<TensorId, std::optional<PartitionId>> declared_;
  std::unordered_map<TensorId, std::vector<TensorId>> sources_;  ///< Of storages: the arguments for them.
  std::vector<TensorId> storages_, todo_;
};

}  // namespace popsr
