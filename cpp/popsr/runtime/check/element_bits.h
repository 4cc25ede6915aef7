// Bits of one element, for messages and comparisons.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "popsr/base/dtype.h"

namespace popsr {

inline std::uint64_t bits_of(const std::byte* element, std::size_t size) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, element, size);
  return bits;
}

/// True for the bits of a NaN.
inline bool is_nan(std::uint64_t bits, DType dtype) {
  if (const auto nan = only_nan(dtype)) return bits == *nan;
  return is_float(dtype) && is_nan(format_of(dtype), bits);
}

}  // namespace popsr
