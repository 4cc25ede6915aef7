// Numbers of the runs of a session, by which any thread ends them.
#pragma once

#include <atomic>
#include <cstdint>

namespace popsr {

/// Numbers of the runs of a session, from 1 on in the order in which they were asked for, and the last
/// that is to end. All members may be called from any thread and from signal handlers. A stop is for the
/// runs that have a number when it is asked for and for no later one, however long either of them is
/// delayed.
class RunStops {
 public:
  /// Returns the number of a new run; from here on a stop ends it.
  std::uint64_t begin() { return begun_.fetch_add(1) + 1; }
  /// Number of the last run that was asked for; 0 if none was.
  std::uint64_t last() const { return begun_.load(); }
  /// Ends the runs up to `run`; those that are over already stay as they are.
  void stop_until(std::uint64_t run) {
    std::uint64_t before = stopped_.load();
    while (before < run && !stopped_.compare_exchange_weak(before, run)) {
    }
  }
  bool is_stopped(std::uint64_t run) const { return run <= stopped_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> begun_{0}, stopped_{0};
};

}  // namespace popsr
