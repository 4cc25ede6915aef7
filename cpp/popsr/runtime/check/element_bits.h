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

/// NaN by its bits: exponent all ones, fraction not zero.
inline bool is_nan(std::uint64_t bits, DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
      return (bits & 0x7fff) > 0x7c00;
    case DType::kBFloat16:
      return (bits & 0x7fff) > 0x7f80;
    case DType::kFloat32:
      return (bits & 0x7fffffff) > 0x7f800000;
    case DType::kFloat64:
      return (bits & 0x7fffffffffffffff) > 0x7ff0000000000000;
    default:
      return false;
  }
}

}  // namespace popsr
