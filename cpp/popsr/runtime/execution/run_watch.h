// Watching a run while it is in progress: callbacks at iterations and at regular intervals.
#pragma once

#include <chrono>
#include <cstdint>

namespace popsr {

/// Observer of a run's progress. Called on the thread of the run, between two instructions; an exception it
/// throws ends the run.
class RunWatcher {
 public:
  virtual ~RunWatcher() = default;
  /// Called when `ended` further iterations (Plan::iterations) have completed.
  virtual void iterated(std::int64_t ended) = 0;
  /// Called about every 20 ms, at any point of the run.
  virtual void poll() = 0;
};

/// Decides between two instructions whether it is time for RunWatcher::poll(). The clock is read before
/// each heavy instruction, and before one in 64 of the others while these are fast.
class PollTimer {
 public:
  /// Bytes that a heavy instruction reads and writes at least: it takes longer than reading the clock 100
  /// times.
  static constexpr std::size_t kHeavy = std::size_t{1} << 16;

  bool is_time(bool heavy) {
    if (!heavy && --left_ > 0) [[likely]]
      return false;
    return read_clock();
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr int kStride = 64;
  static constexpr std::chrono::milliseconds kSlow{1}, kPeriod{20};

  bool read_clock() {
    const Clock::time_point now = Clock::now();
    if (seen_ == Clock::time_point{}) seen_ = polled_ = now;  // the first time in this run
    left_ = now - seen_ < kSlow ? kStride : 1;
    seen_ = now;
    if (now - polled_ < kPeriod) return false;
    polled_ = now;
    return true;
  }

  int left_ = kStride;
  Clock::time_point seen_ = {}, polled_ = {};
};

}  // namespace popsr
