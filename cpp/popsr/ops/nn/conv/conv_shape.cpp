#include "popsr/ops/nn/conv/conv_shape.h"
#include "popsr/ops/nn/conv/pad_rule.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "popsr/base/error.h"

namespace popsr {
namespace {

using Ints = std::vector<std::int64_t>;

/// Bounds every attribute, so that positions fit into 64 bits.
constexpr std::int64_t kMost = (std::int64_t{1} << 31) - 1;

constexpr Attr<Ints> kStride{"stride"};
constexpr Attr<Ints> kPadding{"padding"};
constexpr Attr<Ints> kDilation{"dilation"};
constexpr Attr<std::int64_t> kGroups{"groups"};
constexpr ChoiceAttr<PadRule> kPadType{"pad_type", kPadRules};
constexpr Attr<Ints> kOutputPadding{"output_padding"};
constexpr Attr<Ints> kOutputShape{"output_shape"};

/// The attribute, `size` numbers of at least `least`; all `absent` where it is not given.
Ints read(const Op& op, const Attr<Ints>& attr, std::size_t size, std::int64_t least, std::int64_t absent) {
  Ints values = op.find(attr).value_or(Ints(size, absent));
  if (values.size() != size) {
    raise<AttributeValueError>("{}: {} has a wrong length, got {}, expected {} numbers", op.def->name,
                               attr.name, to_string(values), size);
  }
  for (const std::int64_t value : values) {
    if (least <= value && value <= kMost) continue;
    raise<AttributeValueError>("{}: {} is out of range, got {}, expected {} <= {} <= {}", op.def->name,
                               attr.name, to_string(values), least, attr.name, kMost);
  }
  return values;
}

/// Facts from t, weight and the attributes, before padding is computed.
struct Parts {
  std::string_view name;
  std::size_t rank;  ///< Spatial axes.
  PadRule pad_type;
  Ints in, kernel, stride, dilation, begin, end;

  /// Input positions that the kernel spans.
  std::int64_t span(std::size_t d) const { return (kernel[d] - 1) * dilation[d] + 1; }
  /// Splits padding that pad_type asks for; an odd one goes to the end with same_upper.
  void split(std::size_t d, std::int64_t total) {
    begin[d] = pad_type == PadRule::kSameUpper ? total / 2 : total - total / 2;
    end[d] = total - begin[d];
  }
};

Ints spatial(const Shape& shape) { return {shape.begin() + 2, shape.end()}; }

Parts read_parts(const Op& op, const Shape& t, const Shape& weight) {
  const std::string_view name = op.def->name;
  if (t.size() < 3 || t.size() > 2 + kSpatialAxes) {
    raise<ShapeError>("{}: t does not have 1 to 3 spatial axes, got {}, expected [N, C, spatial...]", name,
                      to_string(t));
  }
  if (std::ranges::any_of(t, [](std::int64_t extent) { return extent > kMost; })) {
    raise<ShapeError>("{}: t is too large, got {}, expected extents up to {}", name, to_string(t), kMost);
  }
  if (weight.size() != t.size()) {
    raise<ShapeError>("{}: weight and t differ in rank, got {} and {}, expected equal ranks", name,
                      to_string(weight), to_string(t));
  }
  const std::size_t rank = t.size() - 2;
  const Ints padding = read(op, kPadding, 2 * rank, 0, 0);
  const auto middle = padding.begin() + static_cast<std::ptrdiff_t>(rank);
  Parts parts{name,
              rank,
              op.get(kPadType),
              spatial(t),
              spatial(weight),
              read(op, kStride, rank, 1, 1),
              read(op, kDilation, rank, 1, 1),
              {padding.begin(), middle},
              {middle, padding.end()}};
  for (const std::int64_t extent : parts.kernel) {
    if (1 <= extent && extent <= kMost) continue;
    raise<ShapeError>("{}: the kernel has no elements, got weight {}, expected positive extents", name,
                      to_string(weight));
  }
  if (parts.pad_type != PadRule::kNotSet) parts.begin = parts.end = Ints(rank, 0);
  return parts;
}

std::int64_t groups_of(const Op& op) {
  const auto groups = op.get(kGroups);
  if (groups >= 1) return groups;
  raise<AttributeValueError>("{}: groups is not positive, got {}, expected 1 or more", op.def->name, groups);
}

/// Extends to three axes, with `first` in front of the given values.
Spatial pad_front(const Ints& values, std::int64_t first) {
  Spatial result;
  result.fill(first);
  std::ranges::copy(values, result.end() - static_cast<std::ptrdiff_t>(values.size()));
  return result;
}

void require_addressable(const Parts& parts, const Shape& output) {
  double elements = 1;
  for (const std::int64_t extent : output) elements *= static_cast<double>(extent);
  if (elements < 0x1p48) return;
  raise<ShapeError>("{}: the result is too large, got {}, expected less than 2^48 elements", parts.name,
                    to_string(output));
}

ConvShape finish(const Parts& parts, const Shape& t, std::int64_t groups, std::int64_t in, std::int64_t out,
                 const Ints& extents) {
  Shape output = {t[0], groups * out};
  output.insert(output.end(), extents.begin(), extents.end());
  require_addressable(parts, output);
  return {t[0],
          groups,
          in,
          out,
          pad_front(parts.in, 1),
          pad_front(extents, 1),
          pad_front(parts.kernel, 1),
          pad_front(parts.stride, 1),
          pad_front(parts.dilation, 1),
          pad_front(parts.begin, 0),
          std::move(output)};
}

void require_channels(std::string_view name, const Shape& t, const Shape& weight, std::int64_t groups,
                      bool transposed) {
  const bool fits = transposed ? weight[0] == t[1] && t[1] % groups == 0
                               : weight[0] % groups == 0 && t[1] % groups == 0 && weight[1] == t[1] / groups;
  if (fits) return;
  raise<ShapeError>("{}: weight does not fit the channels, got {} for {} in {} groups, expected {}", name,
                    to_string(weight), to_string(t), groups,
                    transposed
                        ? "weight.shape[0] == t.shape[1], a multiple of groups"
                        : "weight.shape[1] * groups == t.shape[1] and weight.shape[0] a multiple of groups");
}

/// Padding of conv_transpose that leaves `extent` of the `full` positions that it reaches.
void crop(Parts& parts, std::size_t d, std::int64_t full, std::int64_t extent, const Ints& output_shape) {
  if (extent <= full) return parts.split(d, full - extent);
  if (output_shape.empty()) {  // The kernel is shorter than the stride: the last positions get nothing.
    parts.begin[d] = parts.end[d] = 0;
    return;
  }
  raise<AttributeValueError>(
      "{}: output_shape is larger than what the kernel reaches, got {}, expected at most "
      "{} along spatial axis {}",
      parts.name, to_string(output_shape), full, d);
}

}  // namespace

ConvShape conv_shape(const Op& op, const Shape& t, const Shape& weight) {
  Parts parts = read_parts(op, t, weight);
  const std::int64_t groups = groups_of(op);
  require_channels(parts.name, t, weight, groups, false);
  Ints out(parts.rank);
  for (std::size_t d = 0; d < parts.rank; ++d) {
    if (is_same(parts.pad_type)) {
      const std::int64_t extent = (parts.in[d] + parts.stride[d] - 1) / parts.stride[d];
      const std::int64_t total = (extent - 1) * parts.stride[d] + parts.span(d) - parts.in[d];
      parts.split(d, extent == 0 ? 0 : std::max<std::int64_t>(total, 0));
    }
    const std::int64_t padded = parts.in[d] + parts.begin[d] + parts.end[d];
    const bool same_of_nothing = parts.in[d] == 0 && parts.pad_type != PadRule::kNotSet;
    if (padded < parts.span(d) && !(same_of_nothing && parts.pad_type != PadRule::kValid)) {
      raise<ShapeError>(
          "{}: the kernel is larger than the padded input, got {} positions for {} along spatial axis {}, "
          "expected at most as many",
          parts.name, parts.span(d), padded, d);
    }
    out[d] = padded < parts.span(d) ? 0 : (padded - parts.span(d)) / parts.stride[d] + 1;
  }
  return finish(parts, t, groups, weight[1], weight[0] / groups, out);
}

ConvShape conv_transpose_shape(const Op& op, const Shape& t, const Shape& weight) {
  Parts parts = read_parts(op, t, weight);
  const std::int64_t groups = groups_of(op);
  require_channels(parts.name, t, weight, groups, true);
  const auto given = [&op](const Attr<Ints>& attr) { return op.find(attr).value_or(Ints{}); };
  const Ints output_shape = given(kOutputShape).empty() ? Ints{} : read(op, kOutputShape, parts.rank, 0, 0);
  const Ints extra =
      given(kOutputPadding).empty() ? Ints(parts.rank, 0) : read(op, kOutputPadding, parts.rank, 0, 0);
  Ints out(parts.rank);
  for (std::size_t d = 0; d < parts.rank; ++d) {
    if (extra[d] > 0 && extra[d] >= std::max(parts.stride[d], parts.dilation[d])) {
      raise<AttributeValueError>(
          "{}: output_padding is too large, got {}, expected less than stride or dilation", parts.name,
          to_string(extra));
    }
    const bool same = is_same(parts.pad_type);
    const std::int64_t full =
        parts.in[d] == 0 ? 0 : parts.stride[d] * (parts.in[d] - 1) + extra[d] + parts.span(d);
    out[d] = !output_shape.empty() ? output_shape[d]
             : same                ? parts.in[d] * parts.stride[d]
                                   : full - parts.begin[d] - parts.end[d];
    if (out[d] < 0) {
      raise<ShapeError>(
          "{}: padding takes more than there is, got {} and {} for {} positions along spatial axis "
          "{}, expected at most as many",
          parts.name, parts.begin[d], parts.end[d], full, d);
    }
    if (same || !output_shape.empty()) crop(parts, d, full, out[d], output_shape);
  }
  return finish(parts, t, groups, t[1] / groups, weight[1], out);
}

std::vector<AttrDef> conv_attrs() {
  return {optional(kStride), optional(kPadding), optional(kDilation), optional(kGroups, 1),
          optional(kPadType, PadRule::kNotSet)};
}

std::vector<AttrDef> conv_transpose_attrs() {
  std::vector<AttrDef> attrs = conv_attrs();
  attrs.push_back(optional(kOutputPadding));
  attrs.push_back(optional(kOutputShape));
  return attrs;
}

}  // namespace popsr
