// Times of instructions, of iterations and of the parts that threads work on.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "popsr/runtime/observe/run_observer.h"

namespace popsr {

/// Nanoseconds of the steady clock.
struct TraceEvent {
  std::int64_t begin = 0, end = 0;
  std::uint32_t slot = 0;   ///< Of an instruction; or one of the numbers below.
  std::uint32_t value = 0;  ///< Number of an iteration.
  static constexpr std::uint32_t kRun = 0xFFFFFFFF, kIteration = 0x80000000;  ///< The latter: plus a path.
};

/// An instruction of a plan.
struct TraceSlot {
  std::string name;
  std::uint32_t op = 0;                  ///< kNone for copies.
  std::vector<std::uint32_t> path = {};  ///< Kind, component and id of each node, outermost first.
  std::uint64_t bytes = 0, blocks = 0;
  bool has_body = false;
};

/// All events of an interval of a run whose events are counted only.
struct TraceCount {
  std::int64_t begin = 0, end = 0;
  std::uint64_t instructions = 0, nanoseconds = 0, bytes = 0;
};

class Tracer final : public RunObserver {
 public:
  /// Keeps `limit` events; those after it are counted in intervals.
  explicit Tracer(std::size_t limit) : limit_(limit) {}

  void run_begins(const ObservedRun& run) override;
  void run_ends() override;
  void instruction_begins(const Instruction& instruction) override;
  void instruction_ends(const Instruction& instruction) override;
  void iteration_begins(PathId path, std::uint64_t i) override;

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
  std::vector<std::size_t> open_ = {};  ///< Events whose end is to come.
  const Ir* ir_ = nullptr;
  const Plan* plan_ = nullptr;
  std::uint64_t build_ = 0;
  std::unordered_map<const Instruction*, std::uint32_t> known_ = {};
};

}  // namespace popsr
