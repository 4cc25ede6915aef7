// Options and statistics of a session.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace popsr {

struct SessionOptions {
  std::uint64_t seed = 0;
  bool dedup = true;  ///< False: every replica is stored and computed separately, with the same bits.
  /// Implies dedup = false when it is not 0: the probability with which the claims of the analysis about an
  /// op are compared after it ran; 1 compares all, also of products that else are fused into their
  /// consumers.
  double check = 0;
  int num_threads = 0;        ///< 0 = the process default.
  bool clamp_scales = false;  ///< Clamp the run-time scales of float8 ops instead of an error.
  bool strict_labels =
      false;  ///< A label that is none of its op's classes ends the run with OutOfRangeError.
  /// An op that makes an infinity or NaN of finite operands ends the run with FloatingPointError, before the
  /// next op; products are not fused into their consumers.
  bool check_floats = false;
  /// False: no rewrites of the plan; every op is an instruction that stores its results, with the same bits.
  bool optimise = true;
  bool profile = false;  ///< Instructions are timed: Session::profile().
};

struct SessionStats {
  std::uint64_t runs = 0;
  std::map<std::string, std::uint64_t> kernel_calls;  ///< Per op name: instructions executed.
  std::map<std::string, std::uint64_t> blocks;        ///< Per op name: blocks computed.
};

}  // namespace popsr
