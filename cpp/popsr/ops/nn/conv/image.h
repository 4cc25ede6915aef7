// Copies of the input of a convolution in the compute type, with its padding.
#pragma once

#include <algorithm>
#include <cstring>

#include "popsr/ops/nn/conv/sweep.h"

namespace popsr {

/// Positions begin .. end-1 of a line lie inside an axis.
struct InsideRange {
  std::int64_t begin, end;
};
/// The positions of first, first + step, ... (`n` of them) that lie in [0, extent).
inline InsideRange inside(std::int64_t first, std::int64_t step, std::int64_t extent, std::int64_t n) {
  const auto at_least = [&](std::int64_t x) { return x <= first ? 0 : (x - first + step - 1) / step; };
  const std::int64_t begin = std::min(at_least(0), n);
  return {begin, std::clamp(at_least(extent), begin, n)};
}

/// to[i] = from[i * step]
template <class T>
void copy_strided(T* to, const T* from, std::int64_t step, std::int64_t n) {
  if (step == 1) {
    std::memcpy(to, from, static_cast<std::size_t>(n) * sizeof(T));
  } else if (step == 2) {
    for (std::int64_t i = 0; i < n; ++i) to[i] = from[2 * i];
  } else {
    for (std::int64_t i = 0; i < n; ++i) to[i] = from[i * step];
  }
}

/// to[i * step] = from[i]
template <class T>
void scatter_strided(T* to, std::int64_t step, const T* from, std::int64_t n) {
  if (step == 1) {
    std::memcpy(to, from, static_cast<std::size_t>(n) * sizeof(T));
  } else {
    for (std::int64_t i = 0; i < n; ++i) to[i * step] = from[i];
  }
}

/// One line of a plane: positions `first`, `first` + step, ... of the last axis.
template <class T>
void fill_line(T* to, const T* line, std::int64_t first, std::int64_t step, std::int64_t extent,
               std::int64_t n) {
  const InsideRange in = inside(first, step, extent, n);
  std::fill(to, to + in.begin, T{0});
  if (in.begin < in.end) copy_strided(to + in.begin, line + first + in.begin * step, step, in.end - in.begin);
  std::fill(to + in.end, to + n, T{0});
}

/// Fills the planes of one channel, for the tile that starts at `origin`; returns their end. The channel's
/// input starts at position `begin` of the tiled axis.
template <class T>
T* fill_channel(const ConvSweep& sweep, const T* channel, std::int64_t begin, std::int64_t origin, T* to) {
  const auto position = [&](std::size_t d, std::int64_t local, std::int64_t residue) {
    return ((d == sweep.tile.axis ? origin : 0) + local) * sweep.image.step[d] + residue +
           sweep.image.base[d];
  };
  const auto start = [&](std::size_t d) { return d == sweep.tile.axis ? begin : 0; };
  const Spatial &extent = sweep.tile.extent, &in = sweep.in;
  for (const std::int64_t rx : sweep.image.residues[0])
    for (const std::int64_t ry : sweep.image.residues[1])
      for (const std::int64_t rz : sweep.image.residues[2])
        for (std::int64_t x = 0; x < extent[0]; ++x)
          for (std::int64_t y = 0; y < extent[1]; ++y, to += extent[2]) {
            const std::int64_t px = position(0, x, rx), py = position(1, y, ry);
            if (px < 0 || px >= in[0] || py < 0 || py >= in[1]) {
              std::fill(to, to + extent[2], T{0});
              continue;
            }
            const T* line = channel + ((px - start(0)) * in[1] + py - start(1)) * in[2] - start(2);
            fill_line(to, line, position(2, 0, rz), sweep.image.step[2], in[2], extent[2]);
          }
  return to;
}

/// Positions of the tiled axis that the tile at `origin` reads; all when they are not one piece of memory.
inline InsideRange tile_input(const ConvSweep& sweep, std::int64_t origin) {
  const std::size_t d = sweep.tile.axis;
  for (std::size_t outer = 0; outer < d; ++outer)
    if (sweep.in[outer] != 1) return {0, sweep.in[d]};
  const std::int64_t first =
      origin * sweep.image.step[d] + sweep.image.residues[d].front() + sweep.image.base[d];
  const std::int64_t last = (origin + sweep.tile.extent[d] - 1) * sweep.image.step[d] +
                            sweep.image.residues[d].back() + sweep.image.base[d];
  const std::int64_t begin = std::clamp<std::int64_t>(first, 0, sweep.in[d]);
  return {begin, std::clamp(last + 1, begin, sweep.in[d])};
}

}  // namespace popsr
