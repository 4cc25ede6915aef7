// Watching a run from outside while it goes on: told of iterations, asked now and then whether to go on.
#pragma once

#include <chrono>
#include <cstdint>

namespace popsr {

/// The starter of a run. Called on the thread of the run, between two instructions; what these throw ends the
/// run.
class RunWatcher {
 public:
  virtual ~RunWatcher() = default;
  /// So many iterations (Plan::iterations) have just ended.
  virtual void iterated(std::int64_t ended) = 0;
  /// Called every 20 ms or so, wherever the run is.
  virtual void poll() = 0;
};

/// Decides between two instructions whether it is time to look. The clock is read before each instruction
/// that is heavy, and at one in 64 of the others as long as these are fast.
class PollTimer {
 public:
  /// Memory that an instruction reads and writes from which on it is heavy: it takes longer than 100 clocks.
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
