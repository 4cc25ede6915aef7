// Random contents of streams and variables, and what it means that two of them are the same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "popsr/ir/ir.h"

namespace popsr::test {

using Bytes = std::vector<std::byte>;

/// Fills the memory with elements of that type: floats below 4, some of few bits, with `specials` also zeros,
/// infinities, NaNs and the like; small integers; zeros and ones where the type is an offset's.
void fill(std::span<std::byte> bytes, const TensorType& type, std::uint64_t seed, bool specials);

/// Index of the first element in which the two differ, or -1. All NaNs of a dtype are one value, -0 and +0
/// are two.
std::int64_t first_difference(std::span<const std::byte> a, std::span<const std::byte> b, DType dtype);

}  // namespace popsr::test
