// Copies of the input of a convolution in the compute type, with its padding.
#pragma once

#include <algorithm>
#include <cstring>

#include "popsr/kernels/contract/kernel_table.h"
#include "popsr/ops/nn/conv/sweep.h"

namespace popsr {

/// Range begin .. end-1 of the positions of a line that are inside an axis.
struct InsideRange {
  std::int64_t begin, end;
};
/// Range of the positions first, first + step, ... (`n` of them) that are in [0, extent).
inline InsideRange inside(std::int64_t first, std::int64_t step, std::int64_t extent, std::int64_t n) {
  const auto at_least = [&](std::int64_t x) { return x <= first ? 0 : (x - first + step - 1) / step; };
  const std::int64_t begin = std::min(at_least(0), n);
  return {begin, std::clamp(at_least(extent), begin, n)};
}

/// Copies to[i] = from[i * step].
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

/// Copies to[i * step] = from[i].
template <class T>
void scatter_strided(T* to, std::int64_t step, const T* from, std::int64_t n) {
  if (step == 1) {
    std::memcpy(to, from, static_cast<std::size_t>(n) * sizeof(T));
  } else {
    for (std::int64_t i = 0; i < n; ++i) to[i * step] = from[i];
  }
}

/// Fills the planes of one channel, for the tile that starts at `origin`; returns their end. The channel's
/// input starts at position `begin` of the tiled axis.
template <class T>
T* fill_channel(const kernels::KernelTable& table, const ConvSweep& sweep, const T* channel,
                std::int64_t begin, std::int64_t origin, T* to) {
  const auto position = [&](std::size_t d, std::int64_t local, std::int64_t residue) {
    return ((d == sweep.tile.axis ? origin : 0) + local) * sweep.image.step[d] + residue +
           sweep.image.base[d];
  };
  const auto start = [&](std::size_t d) { return d == sweep.tile.axis ? begin : 0; };
  const Spatial &extent = sweep.tile.extent, &in = sweep.in, &step = sweep.image.step;
  const auto zeros = [&](std::int64_t lines) {
    std::fill(to, to + lines * extent[2], T{0});
    to += lines * extent[2];
  };
  for (const std::int64_t rx : sweep.image.residues[0])
    for (const std::int64_t ry : sweep.image.residues[1])
      for (const std::int64_t rz : sweep.image.residues[2]) {
        const std::int64_t py = position(1, 0, ry), pz = position(2, 0, rz);
        const InsideRange lines = inside(py, step[1], in[1], extent[1]);
        const InsideRange line = inside(pz, step[2], in[2], extent[2]);
        for (std::int64_t x = 0; x < extent[0]; ++x) {
          const std::int64_t px = position(0, x, rx);
          if (px < 0 || px >= in[0] || line.begin == line.end) {
            zeros(extent[1]);
            continue;
          }
          zeros(lines.begin);
          const std::int64_t first = (px - start(0)) * in[1] + py + lines.begin * step[1] - start(1);
          const kernels::FillLinesArgs args{
              .to = to,
              .from = channel + first * in[2] + pz + line.begin * step[2] - start(2),
              .lines = lines.end - lines.begin,
              .from_line = step[1] * in[2],
              .step = step[2],
              .before = line.begin,
              .n = line.end - line.begin,
              .after = extent[2] - line.end};
          (sizeof(T) == 4 ? table.fill_lines_f32 : table.fill_lines_f64)(args);
          to += args.lines * extent[2];
          zeros(extent[1] - lines.end);
        }
      }
  return to;
}

/// Positions of the tiled axis that the tile at `origin` reads; all if they are not one piece of memory.
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
