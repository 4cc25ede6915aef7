// Operands of the fast kernels: how their bits become numbers of the compute type.
#pragma once

#include "popsr/kernels/level/convert/half_tile-inl.h"

namespace popsr::kernels {
namespace {

/// Elements of a tile, at most 2 KiB of results: long enough to hide what a tile costs, short enough that
/// memory is never idle for long.
inline constexpr std::int64_t kFastTile = 512;
template <class Bits>
constexpr std::int64_t fast_tile() {
  return sizeof(Bits) == 8 ? kFastTile / 2 : kFastTile;
}
/// Between buffers that a loop reads and writes at once, so that their addresses differ modulo a page.
inline constexpr std::int64_t kTileGap = 96;

/// Bits: in memory. Wide: what a loop reads, `open` makes it of a tile. value: with `flip` applied to the
/// bits.
struct FromF64 {
  using Bits = std::uint64_t;
  using Wide = std::uint64_t;
  static const Wide* open(Wide*, const Bits* in, std::int64_t) { return in; }
  [[gnu::always_inline]] static double value(Wide bits, std::uint64_t flip) { return from_bits(bits ^ flip); }
};
struct FromF32 {
  using Bits = std::uint32_t;
  using Wide = std::uint32_t;
  static const Wide* open(Wide*, const Bits* in, std::int64_t) { return in; }
  [[gnu::always_inline]] static float value(Wide bits, std::uint32_t flip) { return from_bits(bits ^ flip); }
};
struct FromBf16 {
  using Bits = std::uint16_t;
  using Wide = std::uint16_t;
  static const Wide* open(Wide*, const Bits* in, std::int64_t) { return in; }
  [[gnu::always_inline]] static float value(Wide bits, std::uint32_t flip) {
    return from_bits((static_cast<std::uint32_t>(bits) << 16) ^ flip);
  }
};
struct FromF16 {
  using Bits = std::uint16_t;
  using Wide = std::uint32_t;
  static const Wide* open(Wide* tile, const Bits* in, std::int64_t n) {
    widen_half_tile(tile, in, n);
    return tile;
  }
  [[gnu::always_inline]] static float value(Wide bits, std::uint32_t flip) { return from_bits(bits ^ flip); }
};

}  // namespace
}  // namespace popsr::kernels
