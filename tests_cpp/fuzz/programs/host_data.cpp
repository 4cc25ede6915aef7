#include "fuzz/programs/host_data.h"

#include <array>
#include <cstring>

#include "popsr/base/error.h"

namespace popsr::test {
namespace {

/// SplitMix64.
class Bits {
 public:
  explicit Bits(std::uint64_t seed) : state_(seed) {}
  std::uint64_t operator()() {
    std::uint64_t z = state_ += 0x9E3779B97F4A7C15ULL;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    return z ^ (z >> 31);
  }

 private:
  std::uint64_t state_;
};

/// Numbers of bits of a float's exponent and fraction.
struct Format {
  unsigned exponent = 0, fraction = 0;
};

Format layout_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
      return {5, 10};
    case DType::kBFloat16:
      return {8, 7};
    case DType::kFloat32:
      return {8, 23};
    case DType::kFloat64:
      return {11, 52};
    default:
      return {};
  }
}

std::uint64_t random_float(Format format, std::uint64_t bits, bool specials) {
  const std::uint64_t sign = (bits & 1) << (format.exponent + format.fraction);
  const std::uint64_t top = (std::uint64_t{1} << format.exponent) - 1;
  const std::uint64_t fraction = bits >> 12 & ((std::uint64_t{1} << format.fraction) - 1);
  if (specials && (bits >> 1 & 15) == 0) {
    const std::array<std::uint64_t, 6> special = {
        0,                                        // zero
        fraction,                                 // subnormal
        top << format.fraction,                   // infinity
        (top << format.fraction) | fraction | 1,  // NaN
        (top << format.fraction) - 1,             // the greatest
        std::uint64_t{1} << format.fraction,      // the least normal number
    };
    return sign | special[(bits >> 5 & 0x7f) % special.size()];
  }
  const std::uint64_t exponent = (top >> 1) - 2 + (bits >> 5 & 3);  // 1/4 to 4
  const bool coarse = (bits >> 7 & 3) == 0;
  return sign | exponent << format.fraction |
         (coarse ? fraction >> (format.fraction - 2) << (format.fraction - 2) : fraction);
}

std::uint64_t random_element(const TensorType& type, std::uint64_t bits, bool specials) {
  const DType dtype = type.dtype;
  if (dtype == DType::kBool) return bits & 1;
  if (dtype == DType::kInt32 && type.shape.empty()) return bits & 1;
  if (const Format format = layout_of(dtype); format.exponent != 0)
    return random_float(format, bits, specials);
  if (is_float(dtype) || (bits & 15) == 0) return bits >> 8;  // float8: all bits
  const std::uint64_t small = (bits >> 8) % 9;
  return info(dtype).kind == DTypeKind::kInt ? small - 4 : small;
}

bool is_nan(std::uint64_t bits, DType dtype) {
  const Format format = layout_of(dtype);
  if (format.exponent == 0) return false;
  const std::uint64_t infinity = ((std::uint64_t{1} << format.exponent) - 1) << format.fraction;
  const std::uint64_t sign = std::uint64_t{1} << (format.exponent + format.fraction);
  return (bits & ~sign) > infinity;
}

std::uint64_t element(const std::byte* at, std::size_t size) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, at, size);
  return bits;
}

}  // namespace

void fill(std::span<std::byte> bytes, const TensorType& type, std::uint64_t seed, bool specials) {
  Bits random(seed);
  const std::size_t size = size_of(type.dtype);
  for (std::size_t at = 0; at < bytes.size(); at += size) {
    const std::uint64_t bits = random_element(type, random(), specials);
    std::memcpy(bytes.data() + at, &bits, size);
  }
}

std::int64_t first_difference(std::span<const std::byte> a, std::span<const std::byte> b, DType dtype) {
  POPSR_CHECK(a.size() == b.size());
  if (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0) return -1;
  const std::size_t size = size_of(dtype);
  for (std::size_t at = 0; at < a.size(); at += size) {
    const std::uint64_t x = element(a.data() + at, size), y = element(b.data() + at, size);
    if (x != y && !(is_nan(x, dtype) && is_nan(y, dtype))) return static_cast<std::int64_t>(at / size);
  }
  return -1;
}

}  // namespace popsr::test
