// Shape of a convolution: the rules of strides, dilations, padding and groups, as plain extents.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "popsr/base/layout/shape.h"
#include "popsr/ir/op_def.h"

namespace popsr {

inline constexpr std::size_t kSpatialAxes = 3;
/// Number per spatial axis; data with fewer axes has leading extents of 1.
using Spatial = std::array<std::int64_t, kSpatialAxes>;

inline std::int64_t product(const Spatial& extents) { return extents[0] * extents[1] * extents[2]; }

/// Relation of positions and elements of the kernel. A plain convolution maps `in` positions to `out`:
/// out[o] gathers in[o * stride + k * dilation - begin] for element k; a transposed one scatters: in[i]
/// goes to out[i * stride + k * dilation - begin].
struct ConvWindow {
  Spatial kernel{}, stride{}, dilation{}, begin{};
};

struct ConvShape {
  std::int64_t samples = 0, groups = 1;
  std::int64_t in_channels = 0, out_channels = 0;  ///< Channels of one group.
  Spatial in{}, out{};
  ConvWindow window = {};
  Shape output;  ///< Shape of the result.
};

/// Shape of an op with the attributes of conv_attrs(), on t [N, C, spatial...] and weight [O, C / groups,
/// kernel...]. Throws typed errors that start with the op's name.
ConvShape conv_shape(const Op& op, const Shape& t, const Shape& weight);
/// Shape of an op with the attributes of conv_transpose_attrs(), for weight [C, O / groups, kernel...].
ConvShape conv_transpose_shape(const Op& op, const Shape& t, const Shape& weight);

/// Attributes stride, padding, dilation, groups, pad_type.
std::vector<AttrDef> conv_attrs();
/// Attributes of conv_attrs(), and output_padding, output_shape.
std::vector<AttrDef> conv_transpose_attrs();

}  // namespace popsr
