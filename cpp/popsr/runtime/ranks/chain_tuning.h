// Sizes of values that ranks reduce in a chain (runtime/ranks/rank_chain.h).
#pragma once

#include <cstddef>
#include <cstdint>

namespace popsr {

/// Thresholds of the chain algorithm; equal on all ranks.
struct ChainTuning {
  /// Smallest value in bytes that is reduced in a chain; 0: all values, however few blocks would be
  /// received otherwise.
  std::size_t from_bytes = std::size_t{1} << 16;
  std::int64_t chunk_elements = std::int64_t{1} << 15;
};

}  // namespace popsr
