// Cost model: how much work is worth more than one thread, and how many elements kernels process at a time.
// Results do not depend on the number of threads. They do not depend on the size of tiles either, except
// where an op defines the order of its sum by tiles (lamb_square).
#pragma once

#include <algorithm>
#include <cstdint>

namespace popsr {

/// Elements of one tile of an op's kernel: its operands and temporaries stay in the first-level cache.
inline constexpr std::int64_t kTile = 1024;
/// Elements of one buffer of popsr.sr: a multiple of 8, so that no block of noise is computed twice.
inline constexpr std::int64_t kRoundingTile = 2048;
/// Elements of one buffer of a sum of popsr.sr, which has eight of them.
inline constexpr std::int64_t kRoundingSumTile = 512;
/// Rows, or outputs of reductions, that a thread takes at a time.
inline constexpr std::int64_t kRowGrain = 16;

/// Thresholds for sharing one kind of work among threads.
struct ThreadCost {
  std::int64_t least;           ///< Least work that is shared; less stays on the calling thread.
  std::int64_t per_thread = 1;  ///< Least work per thread.
};

/// Cost in elements of an op's operands, weighted by the additions that one of them costs.
inline constexpr ThreadCost kElementWork = {.least = std::int64_t{1} << 15};
/// Cost in multiply-adds of products and convolutions.
inline constexpr ThreadCost kProductWork = {.least = std::int64_t{2} << 20,
                                            .per_thread = std::int64_t{1} << 20};
/// Cost in elements that popsr.sr rounds.
inline constexpr ThreadCost kRoundingWork = {.least = std::int64_t{2} << 16,
                                             .per_thread = std::int64_t{1} << 16};
/// Cost in bytes of one value that is copied or exchanged; at this size it keeps all threads busy alone.
inline constexpr ThreadCost kValueBytes = {.least = std::int64_t{1} << 18};
/// Cost in bytes that the small collectives of one merged instruction move together.
inline constexpr ThreadCost kMergedBytes = {.least = std::int64_t{1} << 17};

/// True if that much work pays for more than one thread.
constexpr bool worth_threads(ThreadCost cost, std::int64_t work) { return work >= cost.least; }

/// Number of threads, from 1 to `threads`, for `units` indivisible pieces of `work` in all.
constexpr std::int64_t threads_for(ThreadCost cost, std::int64_t work, std::int64_t units,
                                   std::int64_t threads) {
  if (!worth_threads(cost, work)) return 1;
  return std::max<std::int64_t>(std::min({threads, units, work / cost.per_thread}), 1);
}

}  // namespace popsr
