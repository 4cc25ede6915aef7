// Memory that programs differentiate with respect to: variables, and the tensors that pass them to the graphs
// whose gradients are taken. It holds forward values, so a gradient that is written there is an update.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "popsr/ir/calls/called_graphs.h"
#include "popsr/ir/ir.h"

namespace popsr {

class Differentiated {
 public:
  explicit Differentiated(const Ir& ir);

  /// True if autodiff made no graph.
  bool empty() const { return storages_.empty(); }
  bool contains(TensorId storage) const { return !places_.empty() && places_[storage].number != kNone; }
  /// Known results of declared(), by storage.
  std::map<TensorId, PartitionId> all() const;
  /// Sets the fact of a storage whose fact is known: used for all state at once.
  void set_declared(TensorId storage, PartitionId fact) {
    if (contains(storage)) declared_[places_[storage].number] = {Known::kFact, fact};
  }
  /// Storages for which contains() is true.
  const std::vector<TensorId>& storages() const { return storages_; }
  /// Partition of replicas that are declared to hold the same value there; nullopt for memory that holds no
  /// variable's value.
  std::optional<PartitionId> declared(TensorId storage) const;

 private:
  struct Caller {
    OpId op;
    CalledGraph called;
  };

  /// Position of a tensor among storages_, and among the inputs of its graph.
  struct Place {
    std::uint32_t number = kNone, input = kNone;
  };
  /// Entry of a linked list: a storage that is passed as argument for another one, and the index of the
  /// entry before.
  struct Source {
    std::uint32_t number, before;
  };
  enum class Known : std::uint8_t { kNo, kNothing, kFact };
  struct Declared {
    Known known = Known::kNo;
    PartitionId fact = {};
  };

  void list_callers();
  void reserve(std::size_t more);
  void fetch_ahead(std::uint32_t number) const;
  void add(TensorId tensor, std::uint32_t from);
  void add_storage(TensorId storage, std::uint32_t from);
  void add_arguments(TensorId input, std::uint32_t number);
  void add_origins(TensorId tensor, std::uint32_t number);
  std::optional<PartitionId> declared_by_sources(TensorId storage) const;

  const Ir& ir_;
  IdVector<TensorId, Place> places_;  ///< Position per tensor; empty if nothing is differentiated.
  IdVector<GraphId, std::vector<Caller>> callers_;  ///< Ops that run each graph.
  std::vector<TensorId> storages_;
  /// Index in sources_ of the last argument that is passed for each storage; kNone: none is passed.
  std::vector<std::uint32_t> last_source_;
  std::vector<Source> sources_;
  mutable std::vector<Declared> declared_;  ///< Results of declared() that were asked for, by number.
};

}  // namespace popsr
