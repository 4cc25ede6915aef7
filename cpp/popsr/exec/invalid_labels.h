// Class labels out of range, as kernels of losses and one-hot ops find them.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "popsr/replica/partition.h"

namespace popsr {

/// A label outside the classes of its op. The op computes a result as for no class, and the host is informed.
struct InvalidLabel {
  Replica replica = 0;
  std::int64_t place = 0;  ///< Index of the label among the op's labels, in C order.
  std::int64_t label = 0;
  std::int64_t classes = 0;
};

/// First invalid label of one execution, by replica and then by place. Any thread may add.
class InvalidLabels {
 public:
  /// Constructs the collector; `replicas` has the smallest replica of each block of the instruction.
  explicit InvalidLabels(std::span<const Replica> replicas) : replicas_(replicas.begin(), replicas.end()) {}

  /// Sets the number of the first block of the run that starts.
  void start_run(std::int64_t first) { first_ = first; }
  /// Adds a label of block `block` of the run.
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

  /// True after the host was informed: later labels of this instruction are not collected.
  bool is_reported = false;

 private:
  std::vector<Replica> replicas_;
  std::int64_t first_ = 0;
  std::mutex mutex_;
  std::optional<InvalidLabel> found_;
};

}  // namespace popsr
