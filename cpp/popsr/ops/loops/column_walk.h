// Walk of ops along an axis that is not the last: row by row over columns, which are not gathered.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "popsr/base/cost.h"
#include "popsr/base/layout/shape.h"
#include "popsr/ops/loops/blocks.h"

namespace popsr {

/// Extents of a tensor as [outer, n, inner], with n along the axis.
struct AxisExtents {
  std::int64_t outer = 1, n = 1, inner = 1;

  AxisExtents(const Shape& shape, std::int64_t axis) {
    for (std::size_t d = 0; d < shape.size(); ++d) {
      const auto at = static_cast<std::int64_t>(d);
      (at < axis ? outer : at == axis ? n : inner) *= shape[d];
    }
  }
  std::int64_t elements() const { return outer * n * inner; }
};

/// Calls body(block, o, column, count) for ranges of at most kTile columns: `count` adjacent elements from
/// [o, 0, column] on, for element 0 along the axis.
template <class Body>
void for_each_columns(const BlockRun& run, const AxisExtents& of, const Body& body) {
  constexpr std::int64_t kGrain = 64;
  if (of.elements() == 0) return;
  for_each_range(run, {.units = of.outer * of.inner, .grain = kGrain, .work = of.elements()},
                 [&](const Block& block, std::int64_t begin, std::int64_t end) {
                   while (begin < end) {
                     const std::int64_t column = begin % of.inner;
                     const std::int64_t count = std::min({of.inner - column, end - begin, kTile});
                     body(block, begin / of.inner, column, count);
                     begin += count;
                   }
                 });
}

}  // namespace popsr
