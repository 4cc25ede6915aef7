// Time of each instruction of a profiled session.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "popsr/ir/ir.h"
#include "popsr/runtime/plan/plan.h"

namespace popsr {

/// An op that an instruction runs, and the blocks that it has computed.
struct ProfiledOp {
  OpId op = kNone;  ///< kNone for copies.
  std::uint64_t blocks = 0;
};

/// An instruction in all runs of its plan. Loops and conditionals have none: their bodies do.
struct ProfiledInstruction {
  std::string name;  ///< As in a printed plan.
  std::uint64_t executions = 0;
  std::chrono::nanoseconds time{0};
  std::uint64_t bytes = 0;  ///< Of operands and results.
  std::vector<ProfiledOp> ops = {};
};

struct Profile {
  std::chrono::nanoseconds time{0};  ///< Of all runs, with what lies between instructions.
  std::vector<ProfiledInstruction> instructions = {};
};

/// Adds the time that it lives to `total`, unless that is null.
class RunTimer {
 public:
  explicit RunTimer(std::chrono::nanoseconds* total) : total_(total) {
    if (total_ != nullptr) start_ = std::chrono::steady_clock::now();
  }
  ~RunTimer() {
    if (total_ != nullptr) *total_ += std::chrono::steady_clock::now() - start_;
  }
  RunTimer(const RunTimer&) = delete;
  RunTimer& operator=(const RunTimer&) = delete;

 private:
  std::chrono::nanoseconds* total_;
  std::chrono::steady_clock::time_point start_ = {};
};

/// Appends the instructions of a plan that have run, in their order.
void add_instructions(const Ir& ir, const Plan& plan, Profile& profile);

}  // namespace popsr
