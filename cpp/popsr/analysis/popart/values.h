// Facts of mode "popart": true if a tensor is equal on all replicas, from a time on. (Of popart_analysis.h.)
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "popsr/ir/ids.h"

namespace popsr {

/// Position of an op in the schedule of its graph; kInitially before all of them. Times of different graphs
/// have nothing to do with each other.
using Time = std::int32_t;
inline constexpr Time kInitially = -1;

/// One bool for each (tensor, time at which it was made or modified). Values only fall.
class PopartValues {
 public:
  /// Of tensors 0 to tensors - 1.
  explicit PopartValues(std::size_t tensors) : times_(tensors) {}

  /// Stores a first value; of a later one, what both say. True when that is a change: a first value or a
  /// fall. To say true of what is false already is a disagreement.
  bool set(TensorId tensor, Time time, bool value);

  bool known(TensorId tensor) const { return !times_[tensor].empty(); }
  /// InternalError where the tensor has no value at that time, before it, or at all.
  bool at(TensorId tensor, Time time) const;
  bool before(TensorId tensor, Time time) const;
  bool last(TensorId tensor) const;
  /// All values, ascending in time.
  const std::vector<std::pair<Time, bool>>& of(TensorId tensor) const { return times_[tensor]; }

  /// Since the flags were cleared.
  bool changed() const { return changed_; }
  const std::set<TensorId>& disagreements() const { return disagreements_; }
  void clear_flags();

 private:
  IdVector<TensorId, std::vector<std::pair<Time, bool>>>
      times_;  ///< Flat: aliases multiply what there is to store.
  std::set<TensorId> disagreements_;
  bool changed_ = false;
};

}  // namespace popsr
