#include "popsr/ops/nn/conv/sweep.h"

#include <algorithm>

namespace popsr {
namespace {

/// Bytes of an image: a quarter of a usual L2. Decides speed only, as the numbers below.
constexpr std::int64_t kImageBytes = std::int64_t{1} << 18;
/// Positions of a tile below which it is not cut to give more threads work, and how many pieces that is.
constexpr std::int64_t kLeastPositions = 256, kPieces = 16;
/// Positions of a tile when the input serves as image.
constexpr std::int64_t kMostPositions = 2048;

/// One element of the kernel along one axis.
struct Tap {
  /// Index of the tap, residue of its plane, and its position in the plane.
  std::int64_t index, residue, shift;
};
/// One phase along one axis.
struct AxisPhase {
  std::int64_t first, count;
  std::vector<Tap> taps;
};
using AxisPhases = std::vector<AxisPhase>;
using Axes = std::array<AxisPhases, kSpatialAxes>;

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// The shifts of a plane reach from 0 to this.
std::int64_t reach(const AxisPhases& phases) {
  std::int64_t most = 0;
  for (const AxisPhase& phase : phases)
    for (const Tap& tap : phase.taps) most = std::max(most, tap.shift);
  return most;
}

AxisPhases plain_axis(const ConvShape& shape, std::size_t d, ConvSweep& sweep) {
  const std::int64_t stride = shape.window.stride[d], dilation = shape.window.dilation[d];
  std::vector<std::int64_t>& residues = sweep.image.residues[d];
  for (std::int64_t k = 0; k < shape.window.kernel[d]; ++k) residues.push_back(k * dilation % stride);
  std::ranges::sort(residues);
  const auto repeated = std::ranges::unique(residues);
  residues.erase(repeated.begin(), repeated.end());
  sweep.image.step[d] = stride;
  sweep.image.base[d] = -shape.window.begin[d];
  sweep.chains.out_step[d] = 1;
  AxisPhase phase{0, shape.out[d], {}};
  for (std::int64_t k = 0; k < shape.window.kernel[d]; ++k) {
    const std::int64_t at = k * dilation;
    const auto plane = std::ranges::lower_bound(residues, at % stride);
    phase.taps.push_back({k, plane - residues.begin(), at / stride});
  }
  return {std::move(phase)};
}

AxisPhases transposed_axis(const ConvShape& shape, std::size_t d, ConvSweep& sweep) {
  const std::int64_t stride = shape.window.stride[d];
  AxisPhases phases;
  std::int64_t lowest = 0;
  for (std::int64_t first = 0; first < std::min(stride, shape.out[d]); ++first) {
    AxisPhase phase{first, ceil_div(shape.out[d] - first, stride), {}};
    for (std::int64_t k = 0; k < shape.window.kernel[d]; ++k) {
      const std::int64_t at = first + shape.window.begin[d] - k * shape.window.dilation[d];
      if (at % stride != 0) continue;
      phase.taps.push_back({k, 0, at / stride});
      lowest = std::min(lowest, at / stride);
    }
    phases.push_back(std::move(phase));
  }
  for (AxisPhase& phase : phases)
    for (Tap& tap : phase.taps) tap.shift -= lowest;
  sweep.image.residues[d] = {0};
  sweep.image.step[d] = 1;
  sweep.image.base[d] = lowest;
  sweep.chains.out_step[d] = stride;
  return phases;
}

/// Positions of a tile, whose image has `line` elements per position and `reach` more positions.
std::int64_t choose_tile(const ConvSweep& sweep, std::int64_t line, std::int64_t planes, std::int64_t reach,
                         std::int64_t element_size) {
  const std::int64_t positions = std::max<std::int64_t>(sweep.tile.positions, 1);
  const std::int64_t bytes = std::max<std::int64_t>(1, sweep.channels * planes * line * element_size);
  const std::int64_t fits = sweep.image.in_place ? kMostPositions / line : kImageBytes / bytes - reach;
  const std::int64_t units = std::max<std::int64_t>(1, sweep.samples * sweep.groups);
  const std::int64_t shares = ceil_div(positions, ceil_div(kPieces, units));
  // Smaller ones would copy their margins too often.
  const std::int64_t least = std::max(2 * reach, ceil_div(kLeastPositions, line));
  const std::int64_t most = std::clamp<std::int64_t>(std::max(std::min(fits, shares), least), 1, positions);
  return ceil_div(positions, ceil_div(positions, most));
}

/// Chooses the tile and lays the image out.
void lay_out(ConvSweep& sweep, const Axes& axes, bool in_place, std::int64_t element_size) {
  ConvTile& tile = sweep.tile;
  ConvImage& image = sweep.image;
  Spatial reaches{};
  std::int64_t planes = 1;
  image.in_place = in_place;
  for (std::size_t d = 0; d < kSpatialAxes; ++d) {
    for (const AxisPhase& phase : axes[d]) tile.count[d] = std::max(tile.count[d], phase.count);
    reaches[d] = reach(axes[d]);
    planes *= static_cast<std::int64_t>(image.residues[d].size());
    tile.extent[d] = tile.count[d] + reaches[d];
    image.in_place &= image.base[d] == 0 && image.step[d] == 1 && tile.extent[d] == sweep.in[d];
  }
  tile.axis = 0;
  while (tile.axis + 1 < kSpatialAxes && sweep.out[tile.axis] <= 1) ++tile.axis;
  tile.positions = tile.count[tile.axis];
  tile.extent[tile.axis] = 1;
  const std::int64_t line = std::max<std::int64_t>(product(tile.extent), 1);
  tile.size = choose_tile(sweep, line, planes, reaches[tile.axis], element_size);
  tile.count[tile.axis] = tile.size;
  tile.extent[tile.axis] = tile.size + reaches[tile.axis];
  const Spatial& lines = image.in_place ? sweep.in : tile.extent;
  image.pitch = {lines[1] * lines[2], lines[2], 1};
  image.plane = lines[0] * image.pitch[0];
  image.channel = planes * image.plane;
}

/// The phase of one phase per axis.
ConvPhase combine(const ConvSweep& sweep, const AxisPhase& x, const AxisPhase& y, const AxisPhase& z,
                  const Spatial& kernel) {
  ConvPhase phase;
  phase.first = {x.first, y.first, z.first};
  phase.count = {x.count, y.count, z.count};
  const auto planes = [&sweep](std::size_t d) {
    return static_cast<std::int64_t>(sweep.image.residues[d].size());
  };
  std::vector<std::int64_t> shifts;
  for (const Tap& a : x.taps)
    for (const Tap& b : y.taps)
      for (const Tap& c : z.taps) {
        phase.taps.push_back((a.index * kernel[1] + b.index) * kernel[2] + c.index);
        const std::int64_t plane = (a.residue * planes(1) + b.residue) * planes(2) + c.residue;
        shifts.push_back(plane * sweep.image.plane + a.shift * sweep.image.pitch[0] +
                         b.shift * sweep.image.pitch[1] + c.shift);
      }
  for (std::int64_t c = 0; c < sweep.channels; ++c)
    for (const std::int64_t shift : shifts) phase.offset.push_back(c * sweep.image.channel + shift);
  return phase;
}

ConvSweep make_sweep(const ConvShape& shape, bool transposed, bool in_place, std::int64_t element_size) {
  ConvSweep sweep;
  sweep.samples = shape.samples;
  sweep.groups = shape.groups;
  sweep.channels = shape.in_channels;
  sweep.rows = shape.out_channels;
  sweep.in = shape.in;
  sweep.out = shape.out;
  sweep.weight.kernel = product(shape.window.kernel);
  sweep.weight.row = (transposed ? 1 : sweep.channels) * sweep.weight.kernel;
  sweep.weight.channel = (transposed ? sweep.rows : 1) * sweep.weight.kernel;
  Axes axes;
  for (std::size_t d = 0; d < kSpatialAxes; ++d)
    axes[d] = transposed ? transposed_axis(shape, d, sweep) : plain_axis(shape, d, sweep);
  lay_out(sweep, axes, in_place, element_size);
  for (const AxisPhase& x : axes[0])
    for (const AxisPhase& y : axes[1])
      for (const AxisPhase& z : axes[2]) {
        ConvPhase phase = combine(sweep, x, y, z, shape.window.kernel);
        phase.weights = sweep.chains.steps;
        sweep.chains.steps += static_cast<std::int64_t>(phase.offset.size());
        sweep.chains.phases.push_back(std::move(phase));
      }
  return sweep;
}

}  // namespace

std::int64_t swept_positions(const Spatial& count, const Spatial& pitch) {
  std::int64_t n = 1;
  for (std::size_t d = 0; d < kSpatialAxes; ++d) n += std::max<std::int64_t>(count[d] - 1, 0) * pitch[d];
  return n;
}

ConvSweep conv_sweep(const ConvShape& shape, bool in_place, std::int64_t element_size) {
  return make_sweep(shape, false, in_place, element_size);
}

ConvSweep conv_transpose_sweep(const ConvShape& shape, bool in_place, std::int64_t element_size) {
  return make_sweep(shape, true, in_place, element_size);
}

}  // namespace popsr
