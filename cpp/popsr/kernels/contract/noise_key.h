// Key of the noise; see noise.h for derived keys and the word layout.
#pragma once

#include <cstdint>

namespace popsr::kernels {

/// 128-bit ARS-7 key.
struct NoiseKey {
  std::uint64_t lo = 0;
  std::uint64_t hi = 0;
};

}  // namespace popsr::kernels
