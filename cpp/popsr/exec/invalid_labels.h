// Class labels out of range, as kernels of losses and the like find them.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "popsr/replica/partition.h"

namespace popsr {

/// A label that is none of its op's classes. The op takes it as such, and the host is told.
struct InvalidLabel {
  Replica replica = 0;
  std::int64_t place = 0;  ///< Its element among the labels.
  std::int64_t label = 0;
  std::int64_t classes = 0;
};

/// The first stray label of one execution, by replica and then by place. Any thread may add.
class InvalidLabels {
 public:
  /// `replicas`: the smallest of each block of the instruction.
  explicit InvalidLabels(std::span<const Replica> replicas) : replicas_(replicas.begin(), replicas.end()) {}

  /// The run that starts is of blocks `first` and on.
  void start_run(std::int64_t first) { first_ = first; }
  /// Of a block of the run.
  void add(std::int64_t block, std::int64_t place, std::int64_t label, std::int64_t classes) {
    add({replicas_[static_cast<std::size_t>(first_ + block)], place, label, classes});
  }
  void add(const InvalidLabel& found) {
    const std::lock_guard lock(mutex_);
    if (!found_ || std::pair(found.replica, found.place) < std::pair(found_->replica, found_->place)) {
      found_ = found;
    }
  }
  std::optional<InvalidLabel> take() { return std::exchange(found_, std::nullopt); }

  /// Nobody wants to know any more.
  bool is_reported = false;

 private:
  std::vector<Replica> replicas_;
  std::int64_t first_ = 0;
  std::mutex mutex_;
  std::optional<InvalidLabel> found_;
};

}  // namespace popsr
