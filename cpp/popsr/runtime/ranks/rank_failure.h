// Error of one rank, in the form in which it is sent to the other ranks.
#pragma once

#include <cstdint>
#include <exception>
#include <string>

#include "popsr/ir/ids.h"

namespace popsr {

struct RankFailure {
  std::int64_t rank = 0;
  /// Number of instructions that the rank had executed; among several failures the lowest counts.
  std::uint64_t at = 0;
  std::string kind = {};  ///< Name of the error's class in Python.
  std::string text = {};
  OpId op = kNone;  ///< Op that the run was at.
};

/// Failure that describes an exception, without its rank.
RankFailure failure_of(const std::exception_ptr& error);
/// Throws an error of the same class; StoppedError with the rank's number if the class is not one of popsr's.
[[noreturn]] void raise_failure(const RankFailure& failure);

}  // namespace popsr
