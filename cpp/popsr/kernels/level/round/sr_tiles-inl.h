// Tiles of doubles between the steps of a call: widen, evaluate, bracket, decide, store.
#pragma once

#include "popsr/kernels/level/noise/ars.h"
#include "popsr/kernels/level/round/exact/sr_bracket-inl.h"

namespace popsr::kernels {
namespace {

inline constexpr std::int64_t kSrTile = 256;

struct SrTile {
  double in[3][kSrTile];
  double hi[kSrTile], lo[kSrTile], rest[kSrTile];
  std::uint64_t code[kSrTile], p64[kSrTile], sticky[kSrTile];
  std::uint64_t u[kSrTile];
};

using SrLoadFn = void (*)(double* out, const void* in, std::int64_t n);
using SrStoreFn = void (*)(void* out, const std::uint64_t* codes, std::int64_t n);
using SrBracketFn = void (*)(SrTile& tile, std::int64_t n);

template <FloatFormat kFormat>
void sr_load(double* out, const void* in, std::int64_t n) {
  const auto* bits = static_cast<const Storage<kFormat>*>(in);
  for (std::int64_t i = 0; i < n; ++i) out[i] = widen_to_double<kFormat>(bits[i]);
}

template <FloatFormat kFormat>
void sr_store(void* out, const std::uint64_t* codes, std::int64_t n) {
  auto* bits = static_cast<Storage<kFormat>*>(out);
  for (std::int64_t i = 0; i < n; ++i) bits[i] = static_cast<Storage<kFormat>>(codes[i]);
}

template <FloatFormat kFormat>
void sr_bracket(SrTile& tile, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    const SrBracket b = bracket_of<kFormat>({tile.hi[i], tile.lo[i], tile.rest[i]});
    tile.code[i] = b.code;
    tile.p64[i] = b.p64;
    tile.sticky[i] = b.sticky;
  }
}

/// U of elements done ... done + n - 1 of the call.
inline const std::uint64_t* sr_uniform(SrTile& tile, const SrRounding& rounding, std::int64_t done,
                                       std::int64_t n) {
  if (rounding.uniform != nullptr) return rounding.uniform + done;
  if (rounding.mode <= SrMode::kBits) {
    uniform_bits(tile.u, n, rounding.key, rounding.first + static_cast<std::uint64_t>(done));
  } else {
    for (std::int64_t i = 0; i < n; ++i) tile.u[i] = 0;
  }
  return tile.u;
}

inline constexpr auto kSrLoad =
    per_format<SrLoadFn>([]<FloatFormat kFormat>() -> SrLoadFn { return sr_load<kFormat>; });
inline constexpr auto kSrBracket =
    per_format<SrBracketFn>([]<FloatFormat kFormat>() -> SrBracketFn { return sr_bracket<kFormat>; });
inline constexpr auto kSrStore =
    per_format<SrStoreFn>([]<FloatFormat kFormat>() -> SrStoreFn { return sr_store<kFormat>; });

}  // namespace
}  // namespace popsr::kernels
