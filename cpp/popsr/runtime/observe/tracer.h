// Times of instructions, of iterations and of the parts that threads work on.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "popsr/runtime/observe/observed_run.h"

namespace popsr {

/// Interval of an event, in nanoseconds of PartTimes::clock().
struct TraceEvent {
  std::int64_t begin = 0, end = 0;
  std::uint32_t slot = 0;   ///< Slot of an instruction, or one of the constants below.
  std::uint32_t value = 0;  ///< Number of an iteration.
  /// Slot of a run; of an iteration, to which its path is added.
  static constexpr std::uint32_t kRun = 0xFFFFFFFF, kIteration = 0x80000000;
};

/// Description of an instruction of a plan.
struct TraceSlot {
  std::string name;
  std::uint32_t op = 0;                  ///< Op of the instruction; kNone for copies.
  std::vector<std::uint32_t> path = {};  ///< Kind, component and id of each path node, outermost first.
  std::uint64_t bytes = 0, blocks = 0;
  bool has_body = false;
};

/// Sums over an interval of a run in which events are only counted.
struct TraceCount {
  std::int64_t begin = 0, end = 0;
  std::uint64_t instructions = 0, nanoseconds = 0, bytes = 0;
};

class Tracer {
 public:
  /// Makes a tracer that keeps `limit` events; later events are counted in intervals.
  explicit Tracer(std::size_t limit) : limit_(limit) {}

  // Callbacks of RunObservers.

  void run_begins(const ObservedRun& run);
  void run_ends();
  void instruction_begins(const Instruction& instruction);
  void instruction_ends(const Instruction& instruction);
  void iteration_begins(PathId path, std::uint64_t i);
  /// Lets the clock stand still for `time` that has passed; until the first event it is the steady clock.
  void exclude(std::chrono::nanoseconds time) {
    if (!events_.empty()) parts_.left_out += time.count();
  }

  PartTimes& parts() { return parts_; }
  const std::vector<TraceEvent>& events() const { return events_; }
  const std::vector<TraceSlot>& slots() const { return slots_; }
  const std::vector<TraceCount>& counts() const { return counts_; }

 private:
  std::uint32_t slot_of(const Instruction& instruction);
  void count(const TraceEvent& event, std::uint64_t bytes);

  std::size_t limit_;
  PartTimes parts_{limit_ / 4};
  std::vector<TraceEvent> events_ = {};
  std::vector<TraceSlot> slots_ = {};
  std::vector<TraceCount> counts_ = {};
  std::int64_t interval_ = 10'000'000;
  std::vector<std::size_t> open_ = {};  ///< Indices of events that have not ended.
  const Ir* ir_ = nullptr;
  const Plan* plan_ = nullptr;
  std::uint64_t build_ = 0;
  std::unordered_map<const Instruction*, std::uint32_t> known_ = {};
};

}  // namespace popsr
