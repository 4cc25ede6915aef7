// Time of each instruction of a profiled session.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "popsr/ir/ir.h"
#include "popsr/runtime/plan/plan.h"

namespace popsr {

/// An op that an instruction runs, and the number of blocks that it has computed.
struct ProfiledOp {
  OpId op = kNone;  ///< Op of the instruction; kNone for copies.
  std::uint64_t blocks = 0;
};

/// One instruction, summed over all runs of its plan. Loops and conditionals have no entry; the
/// instructions of their bodies do.
struct ProfiledInstruction {
  std::string name;  ///< Name as in a printed plan.
  std::uint64_t executions = 0;
  std::chrono::nanoseconds time{0};
  std::uint64_t bytes = 0;  ///< Bytes of operands and results.
  std::vector<ProfiledOp> ops = {};
};

struct Profile {
  std::chrono::nanoseconds time{0};  ///< Time of all runs, including time between instructions.
  std::vector<ProfiledInstruction> instructions = {};
};

/// Scope timer: adds its lifetime to `total`, unless that is null, without the growth of `left_out`.
class RunTimer {
 public:
  RunTimer(std::chrono::nanoseconds* total, const std::chrono::nanoseconds& left_out)
      : total_(total), left_out_(left_out) {
    if (total_ != nullptr) start_ = std::chrono::steady_clock::now() - left_out_;
  }
  ~RunTimer() {
    if (total_ != nullptr) *total_ += std::chrono::steady_clock::now() - left_out_ - start_;
  }
  RunTimer(const RunTimer&) = delete;
  RunTimer& operator=(const RunTimer&) = delete;

 private:
  std::chrono::nanoseconds* total_;
  const std::chrono::nanoseconds& left_out_;
  std::chrono::steady_clock::time_point start_ = {};
};

/// Appends the instructions of a plan that have run, in plan order.
void add_instructions(const Ir& ir, const Plan& plan, Profile& profile);

}  // namespace popsr
