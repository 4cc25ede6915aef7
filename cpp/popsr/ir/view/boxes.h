// Sets of elements of a tensor, as boxes in its coordinates.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "popsr/base/shape.h"

namespace popsr {

/// start, start + step, ...: `count` positions. Spans are made by make_span, so equal sets are equal spans.
struct Span {
  std::int64_t start = 0;
  std::int64_t count = 0;
  std::int64_t step = 1;  ///< At least 1.

  std::int64_t last() const { return start + (count - 1) * step; }
  auto operator<=>(const Span&) const = default;
};

/// `step` may be negative: the same positions, ascending. A span of one position has step 1.
Span make_span(std::int64_t start, std::int64_t count, std::int64_t step = 1);

/// The elements whose coordinates lie in one span each; the element itself for a scalar.
using Box = std::vector<Span>;

/// More boxes than that are not kept apart.
inline constexpr std::size_t kMaxBoxes = 8;

/// A set of elements. When it is not exact, it holds more than it should.
struct Boxes {
  std::vector<Box> boxes = {};
  bool exact = true;
};

Box whole_box(const Shape& shape);
std::int64_t num_elements(const Box& box);
inline bool is_empty(const Box& box) { return num_elements(box) == 0; }

// Of boxes of one tensor.
/// The intersection; nullopt if it is empty.
std::optional<Box> intersection(const Box& a, const Box& b);
bool contains(const Box& outer, const Box& inner);
/// `a` without `b`, as boxes that do not overlap.
std::vector<Box> difference(const Box& a, const Box& b);
/// The box without gaps that holds both.
Box hull(const Box& a, const Box& b);
/// The box that holds what both hold and nothing else, if there is one.
std::optional<Box> exact_union(const Box& a, const Box& b);

/// The elements of a box of a tensor of shape `from` in coordinates of shape `to`, whose elements are the
/// same in C order.
Boxes reshaped(const Box& box, const Shape& from, const Shape& to);

/// At most kMaxBoxes boxes: otherwise their hull.
void limit(Boxes& boxes);

}  // namespace popsr
