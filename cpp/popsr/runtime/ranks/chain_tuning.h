// The size of values that ranks reduce in a chain (runtime/ranks/rank_chain.h).
#pragma once

#include <cstddef>
#include <cstdint>

namespace popsr {

/// Values for which ranks make a chain; the same on all ranks.
struct ChainTuning {
  std::size_t from_bytes = std::size_t{1} << 16;  ///< 0: of all sizes, however few blocks would be received.
  std::int64_t chunk_elements = std::int64_t{1} << 15;
};

}  // namespace popsr
