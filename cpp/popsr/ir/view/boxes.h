// Sets of elements of a tensor, as boxes in its coordinates.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "popsr/base/layout/shape.h"

namespace popsr {

/// Positions start, start + step, ...: `count` of them. Spans are made by make_span, so equal sets are
/// equal spans.
struct Span {
  std::int64_t start = 0;
  std::int64_t count = 0;
  std::int64_t step = 1;  ///< Step, at least 1.

  std::int64_t last() const { return start + (count - 1) * step; }
  auto operator<=>(const Span&) const = default;
};

/// Makes a span. A negative `step` gives the same positions, ascending; a span of one position has step 1.
Span make_span(std::int64_t start, std::int64_t count, std::int64_t step = 1);

/// Set of elements whose coordinates lie in one span each; for a scalar, its element.
using Box = std::vector<Span>;

/// Largest number of boxes of a set; more are replaced by their hull.
inline constexpr std::size_t kMaxBoxes = 8;

/// A set of elements. If it is not exact, it is a superset.
struct Boxes {
  std::vector<Box> boxes = {};
  bool exact = true;
};

Box whole_box(const Shape& shape);
std::int64_t num_elements(const Box& box);
inline bool is_empty(const Box& box) { return num_elements(box) == 0; }

// Operations on boxes of one tensor.
/// Intersection; nullopt if it is empty.
std::optional<Box> intersection(const Box& a, const Box& b);
bool contains(const Box& outer, const Box& inner);
/// Difference `a` without `b`, as boxes that do not overlap.
std::vector<Box> difference(const Box& a, const Box& b);
/// Smallest box without gaps that contains both.
Box hull(const Box& a, const Box& b);
/// Box that contains the elements of both and no others, if there is one.
std::optional<Box> exact_union(const Box& a, const Box& b);

/// Elements of a box of a tensor of shape `from`, in coordinates of shape `to`, which has the same elements
/// in C order.
Boxes reshaped(const Box& box, const Shape& from, const Shape& to);

/// Replaces more than kMaxBoxes boxes by their hull.
void limit(Boxes& boxes);

}  // namespace popsr
