// A convolution as chains over an image in memory: the input of kernels::ConvArgs, computed when a plan is
// made.
//
// The input of a group is copied, in the compute type and with its padding, to an image whose rows follow one
// another. In it a step of the chain of every output position is the image shifted by a constant, so that
// vectors of positions are plain loads. Positions between the end of an output row and the next one are
// computed as well and dropped.
//  - A stride splits the image into one plane per residue of the positions that the kernel reads.
//  - A transposed convolution is one plain convolution of stride 1 per residue of its output positions (a
//    phase), with the elements of the kernel that reach it.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "popsr/ops/nn/conv/conv_shape.h"

namespace popsr {

/// Phase: the output positions local * out_step + first, and the chain that computes them.
struct ConvPhase {
  Spatial first{};
  Spatial count{};                   ///< Number of positions along each axis.
  std::vector<std::int64_t> taps;    ///< Elements of the kernel, ascending; the chain is [channel][tap].
  std::vector<std::int64_t> offset;  ///< Offset in the image of each step of the chain.
  std::int64_t weights = 0;          ///< Number of steps of the phases before this one.
};

struct ConvChains {
  Spatial out_step{};
  std::vector<ConvPhase> phases;
  std::int64_t steps = 0;  ///< Number of steps of all phases.
};

/// Layout of a group's weight.
struct ConvWeight {
  std::int64_t kernel = 1;            ///< Number of elements of the kernel.
  std::int64_t row = 0, channel = 0;  ///< Strides of an output and an input channel.
};

/// Layout of the input of a group in memory.
struct ConvImage {
  /// Residues of the planes along each axis: position l of the plane of residue r is input (origin + l) *
  /// step + r + base.
  std::array<std::vector<std::int64_t>, kSpatialAxes> residues;
  Spatial step{}, base{};
  Spatial pitch{};           ///< Elements between positions along an axis.
  std::int64_t plane = 0;    ///< Elements between planes.
  std::int64_t channel = 0;  ///< Elements between channels.
  bool in_place = false;     ///< True if the input itself serves as image, if it needs no conversion.
};

/// Tiling: positions are computed `size` at a time along axis `axis`, the first with more than one output.
struct ConvTile {
  std::size_t axis = 0;
  std::int64_t size = 1;
  std::int64_t positions = 1;  ///< Number of positions of the axis, in the largest phase.
  Spatial count{};             ///< Positions of a tile, in the largest phase.
  Spatial extent{};            ///< Extents of the planes that a tile reads.
};

struct ConvSweep {
  /// Samples and groups; input channels and output channels of a group.
  std::int64_t samples = 0, groups = 1, channels = 0, rows = 0;
  Spatial in{}, out{};
  ConvWeight weight = {};
  ConvImage image = {};
  ConvTile tile = {};
  ConvChains chains = {};

  std::int64_t tiles() const { return (tile.positions + tile.size - 1) / tile.size; }
  std::int64_t image_elements() const { return image.in_place ? 0 : channels * image.channel; }
  std::int64_t weight_elements() const { return groups * rows * channels * weight.kernel; }
};

/// Number of positions that a product over an image computes for `count` outputs, including positions
/// between lines; 1 for none.
std::int64_t swept_positions(const Spatial& count, const Spatial& pitch);

/// Computes the sweep; `in_place` is true if the input has the compute type.
ConvSweep conv_sweep(const ConvShape& shape, bool in_place, std::int64_t element_size);
ConvSweep conv_transpose_sweep(const ConvShape& shape, bool in_place, std::int64_t element_size);

}  // namespace popsr
