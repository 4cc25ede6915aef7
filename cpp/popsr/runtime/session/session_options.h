// Options and statistics of a session.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "popsr/analysis/seed_rules.h"

namespace popsr {

struct SessionOptions {
  std::uint64_t seed = 0;
  bool dedup = true;  ///< False: every replica is stored and computed separately, with the same bits.
  /// Probability with which the claims of the analysis about an op are compared after it ran; 1 compares
  /// all, including products that would otherwise be fused into their consumers. A value other than 0
  /// implies dedup = false.
  double check = 0;
  int num_threads = 0;  ///< Number of threads; 0 = the process default.
  /// True to clamp the run-time scales of float8 ops instead of raising an error.
  bool clamp_scales = false;
  /// True if a label outside the classes of its op ends the run with OutOfRangeError.
  bool strict_labels = false;
  /// True if an op that makes an infinity or NaN of finite operands ends the run with FloatingPointError,
  /// before the next op; products are then not fused into their consumers.
  bool check_floats = false;
  /// False: the plan is not rewritten; every op is an instruction that stores its results, with the same
  /// bits.
  bool optimise = true;
  bool profile = false;  ///< True to time instructions: Session::profile().
  /// Seed rules of facts that the session computes itself; facts that it is given have theirs.
  SeedRules seed_rules = {};
};

struct SessionStats {
  std::uint64_t runs = 0;
  std::map<std::string, std::uint64_t> kernel_calls;  ///< Instructions executed, by op name.
  std::map<std::string, std::uint64_t> blocks;        ///< Blocks computed, by op name.
};

}  // namespace popsr
