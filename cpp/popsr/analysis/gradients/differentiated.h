// The memory that programs differentiate by: variables, and what hands them to the graphs whose gradients are
// taken. It holds forward values, so a gradient that is written there is an update.
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
  /// The results of declared() that are known, by storage.
  std::map<TensorId, PartitionId> all() const;
  /// For storages whose fact is known: of all state in one go.
  void set_declared(TensorId storage, PartitionId fact) {
    if (contains(storage)) declared_[places_[storage].number] = {Known::kFact, fact};
  }
  /// All storages of which contains() is true.
  const std::vector<TensorId>& storages() const { return storages_; }
  /// Replicas that are declared to hold the same value there; nullopt for what is not a variable's.
  std::optional<PartitionId> declared(TensorId storage) const;

 private:
  struct Caller {
    OpId op;
    CalledGraph called;
  };

  /// The place of a tensor: among storages_, and among the inputs of its graph.
  struct Place {
    std::uint32_t number = kNone, input = kNone;
  };
  /// A storage that is an argument for another one, and the argument before it; both by number.
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
  IdVector<TensorId, Place> places_;                ///< Empty if nothing is differentiated.
  IdVector<GraphId, std::vector<Caller>> callers_;  ///< Ops that run the graph.
  std::vector<TensorId> storages_;
  std::vector<std::uint32_t> last_source_;  ///< By number; kNone: there are no arguments.
  std::vector<Source> sources_;
  mutable std::vector<Declared> declared_;  ///< By number, of those that were asked for.
};

}  // namespace popsr
