// An error of one rank, as the other ranks are told of it.
#pragma once

#include <cstdint>
#include <exception>
#include <string>

#include "popsr/ir/ids.h"

namespace popsr {

struct RankFailure {
  std::int64_t rank = 0;
  std::uint64_t at = 0;   ///< Instructions that the rank had executed: of several failures the first counts.
  std::string kind = {};  ///< Name of the error's class in Python.
  std::string text = {};
  OpId op = kNone;  ///< That the run was at.
};

/// The failure of an exception, without its rank.
RankFailure failure_of(const std::exception_ptr& error);
/// Throws the same error; of a class that is not popsr's a StoppedError that names the rank.
[[noreturn]] void raise_failure(const RankFailure& failure);

}  // namespace popsr
