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
  std::int64_t index, residue, shift;  ///< Which, the plane's index, and the position in the plane.
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
  std::vector<std::int64_t>& residues = sweep.residues[d];
  for (std::int64_t k = 0; k < shape.kernel[d]; ++k)
    residues.push_back(k * shape.dilation[d] % shape.stride[d]);
  std::ranges::sort(residues);
  const auto repeated = std::ranges::unique(residues);
  residues.erase(repeated.begin(), repeated.end());
  sweep.step[d] = shape.stride[d];
  sweep.base[d] = -shape.begin[d];
  sweep.out_step[d] = 1;
  AxisPhase phase{0, shape.out[d], {}};
  for (std::int64_t k = 0; k < shape.kernel[d]; ++k) {
    const std::int64_t at = k * shape.dilation[d];
    const auto plane = std::ranges::lower_bound(residues, at % shape.stride[d]);
    phase.taps.push_back({k, plane - residues.begin(), at / shape.stride[d]});
  }
  return {std::move(phase)};
}

AxisPhases transposed_axis(const ConvShape& shape, std::size_t d, ConvSweep& sweep) {
  const std::int64_t stride = shape.stride[d];
  AxisPhases phases;
  std::int64_t lowest = 0;
  for (std::int64_t first = 0; first < std::min(stride, shape.out[d]); ++first) {
    AxisPhase phase{first, ceil_div(shape.out[d] - first, stride), {}};
    for (std::int64_t k = 0; k < shape.kernel[d]; ++k) {
      const std::int64_t at = first + shape.begin[d] - k * shape.dilation[d];
      if (at % stride != 0) continue;
      phase.taps.push_back({k, 0, at / stride});
      lowest = std::min(lowest, at / stride);
    }
    phases.push_back(std::move(phase));
  }
  for (AxisPhase& phase : phases)
    for (Tap& tap : phase.taps) tap.shift -= lowest;
  sweep.residues[d] = {0};
  sweep.step[d] = 1;
  sweep.base[d] = lowest;
  sweep.out_step[d] = stride;
  return phases;
}

/// Positions of a tile, whose image has `line` elements per position and `reach` more positions.
std::int64_t choose_tile(const ConvSweep& sweep, std::int64_t line, std::int64_t planes, std::int64_t reach,
                         std::int64_t element_size) {
  const std::int64_t positions = std::max<std::int64_t>(sweep.positions, 1);
  const std::int64_t bytes = std::max<std::int64_t>(1, sweep.channels * planes * line * element_size);
  const std::int64_t fits = sweep.in_place ? kMostPositions / line : kImageBytes / bytes - reach;
  const std::int64_t units = std::max<std::int64_t>(1, sweep.samples * sweep.groups);
  const std::int64_t spreads = ceil_div(positions, ceil_div(kPieces, units));
  // Smaller ones would copy their margins too often.
  const std::int64_t least = std::max(2 * reach, ceil_div(kLeastPositions, line));
  const std::int64_t most = std::clamp<std::int64_t>(std::max(std::min(fits, spreads), least), 1, positions);
  return ceil_div(positions, ceil_div(positions, most));
}

/// Chooses the tile and lays the image out.
void lay_out(ConvSweep& sweep, const Axes& axes, bool in_place, std::int64_t element_size) {
  Spatial reaches{};
  std::int64_t planes = 1;
  sweep.in_place = in_place;
  for (std::size_t d = 0; d < kSpatialAxes; ++d) {
    for (const AxisPhase& phase : axes[d]) sweep.count[d] = std::max(sweep.count[d], phase.count);
    reaches[d] = reach(axes[d]);
    planes *= static_cast<std::int64_t>(sweep.residues[d].size());
    sweep.extent[d] = sweep.count[d] + reaches[d];
    sweep.in_place &= sweep.base[d] == 0 && sweep.step[d] == 1 && sweep.extent[d] == sweep.in[d];
  }
  sweep.axis = 0;
  while (sweep.axis + 1 < kSpatialAxes && sweep.out[sweep.axis] <= 1) ++sweep.axis;
  sweep.positions = sweep.count[sweep.axis];
  sweep.extent[sweep.axis] = 1;
  const std::int64_t line = std::max<std::int64_t>(product(sweep.extent), 1);
  sweep.tile = choose_tile(sweep, line, planes, reaches[sweep.axis], element_size);
  sweep.count[sweep.axis] = sweep.tile;
  sweep.extent[sweep.axis] = sweep.tile + reaches[sweep.axis];
  const Spatial& lines = sweep.in_place ? sweep.in : sweep.extent;
  sweep.pitch = {lines[1] * lines[2], lines[2], 1};
  sweep.plane = lines[0] * sweep.pitch[0];
  sweep.channel = planes * sweep.plane;
}

/// The phase of one phase per axis.
ConvPhase combine(const ConvSweep& sweep, const AxisPhase& x, const AxisPhase& y, const AxisPhase& z,
                  const Spatial& kernel) {
  ConvPhase phase;
  phase.first = {x.first, y.first, z.first};
  phase.count = {x.count, y.count, z.count};
  const auto planes = [&sweep](std::size_t d) { return static_cast<std::int64_t>(sweep.residues[d].size()); };
  std::vector<std::int64_t> shifts;
  for (const Tap& a : x.taps)
    for (const Tap& b : y.taps)
      for (const Tap& c : z.taps) {
        phase.taps.push_back((a.index * kernel[1] + b.index) * kernel[2] + c.index);
        const std::int64_t plane = (a.residue * planes(1) + b.residue) * planes(2) + c.residue;
        shifts.push_back(plane * sweep.plane + a.shift * sweep.pitch[0] + b.shift * sweep.pitch[1] + c.shift);
      }
  for (std::int64_t c = 0; c < sweep.channels; ++c)
    for (const std::int64_t shift : shifts) phase.offset.push_back(c * sweep.channel + shift);
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
  sweep.kernel = product(shape.kernel);
  sweep.weight_row = (transposed ? 1 : sweep.channels) * sweep.kernel;
  sweep.weight_channel = (transposed ? sweep.rows : 1) * sweep.kernel;
  Axes axes;
  for (std::size_t d = 0; d < kSpatialAxes; ++d)
    axes[d] = transposed ? transposed_axis(shape, d, sweep) : plain_axis(shape, d, sweep);
  lay_out(sweep, axes, in_place, element_size);
  for (const AxisPhase& x : axes[0])
    for (const AxisPhase& y : axes[1])
      for (const AxisPhase& z : axes[2]) {
        ConvPhase phase = combine(sweep, x, y, z, shape.kernel);
        phase.weights = sweep.steps;
        sweep.steps += static_cast<std::int64_t>(phase.offset.size());
        sweep.phases.push_back(std::move(phase));
      }
  return sweep;
}

}  // namespace

ConvSweep conv_sweep(const ConvShape& shape, bool in_place, std::int64_t element_size) {
  return make_sweep(shape, false, in_place, element_size);
}

ConvSweep conv_transpose_sweep(const ConvShape& shape, bool in_place, std::int64_t element_size) {
  return make_sweep(shape, true, in_place, element_size);
}

}  // namespace popsr
