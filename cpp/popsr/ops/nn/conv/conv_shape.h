// The shape of a convolution: the rules of strides, dilations, padding and groups, as plain extents.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "popsr/base/shape.h"
#include "popsr/ir/op_def.h"

namespace popsr {

inline constexpr std::size_t kSpatialAxes = 3;
/// A number per spatial axis; data of fewer axes are data whose first ones have extent 1.
using Spatial = std::array<std::int64_t, kSpatialAxes>;

inline std::int64_t product(const Spatial& extents) { return extents[0] * extents[1] * extents[2]; }

/// The positions that meet element k of the kernel. A plain convolution takes `in` positions to `out`:
///   out[o] gathers in[o * stride + k * dilation - begin],
/// a transposed one scatters them:
///   in[i] goes to out[i * stride + k * dilation - begin].
struct ConvWindow {
  Spatial kernel{}, stride{}, dilation{}, begin{};
};

struct ConvShape {
  std::int64_t samples = 0, groups = 1;
  std::int64_t in_channels = 0, out_channels = 0;  ///< Of one group.
  Spatial in{}, out{};
  ConvWindow window = {};
  Shape output;  ///< Of the result.
};

/// Of an op with the attributes of conv_attrs(), on t [N, C, spatial...] and weight [O, C / groups,
/// kernel...]. Raises typed errors that start with the op's name.
ConvShape conv_shape(const Op& op, const Shape& t, const Shape& weight);
/// The same with conv_transpose_attrs(), for weight [C, O / groups, kernel...].
ConvShape conv_transpose_shape(const Op& op, const Shape& t, const Shape& weight);

/// stride, padding, dilation, groups, pad_type.
std::vector<AttrDef> conv_attrs();
/// The same and output_padding, output_shape.
std::vector<AttrDef> conv_transpose_attrs();

}  // namespace popsr
