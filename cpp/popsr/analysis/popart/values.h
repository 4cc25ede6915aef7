// Facts of mode "popart" (popart_analysis.h): true if a tensor is equal on all replicas, from a time on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "popsr/ir/ids.h"

namespace popsr {

/// Position of an op in the schedule of its graph; kInitially before all of them. Times of different graphs
/// are unrelated.
using Time = std::int32_t;
inline constexpr Time kInitially = -1;

/// One bool for each (tensor, time at which it was made or modified). Values only change from true to false.
class PopartValues {
 public:
  /// Makes an empty table for tensors 0 to tensors - 1.
  explicit PopartValues(std::size_t tensors) : times_(tensors) {}

  /// Stores a first value; ANDs a later one with the stored value. Returns true if that is a change.
  /// Setting true where false is stored is recorded as a disagreement.
  bool set(TensorId tensor, Time time, bool value);

  bool known(TensorId tensor) const { return !times_[tensor].empty(); }
  /// Value at a time, before it, or the last one; InternalError if the tensor has none.
  bool at(TensorId tensor, Time time) const;
  bool before(TensorId tensor, Time time) const;
  bool last(TensorId tensor) const;
  /// All values, ascending in time.
  const std::vector<std::pair<Time, bool>>& of(TensorId tensor) const { return times_[tensor]; }

  /// True if a value changed since clear_flags().
  bool changed() const { return changed_; }
  const std::set<TensorId>& disagreements() const { return disagreements_; }
  void clear_flags();

 private:
  IdVector<TensorId, std::vector<std::pair<Time, bool>>>
      times_;  ///< Values of each tensor in a flat list: aliases multiply the number of values.
  std::set<TensorId> disagreements_;
  bool changed_ = false;
};

}  // namespace popsr
