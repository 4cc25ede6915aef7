#include "popsr/effects/memory.h"

#include <algorithm>

#include "popsr/ir/op_def.h"

namespace popsr {
namespace {

bool holds(const Region& outer, const Region& inner) {
  if (outer.whole) return true;
  if (!outer.part.exact) return false;
  std::vector<Box> rest = inner.part.boxes;
  for (const Box& box : outer.part.boxes) {
    std::vector<Box> next;
    for (const Box& each : rest) {
      const std::vector<Box> left = difference(each, box);
      next.insert(next.end(), left.begin(), left.end());
    }
    rest = std::move(next);
  }
  return rest.empty();
}

}  // namespace

bool overlaps(const Ir& ir, TensorId a, TensorId b) {
  if (view_of(ir, a) == nullptr && view_of(ir, b) == nullptr)
    return ir.tensor(a).memory.storage == ir.tensor(b).memory.storage;
  const std::vector<Region> others = regions_of(ir, b);
  return std::ranges::any_of(regions_of(ir, a), [&others](const Region& region) {
    const auto it = std::ranges::find(others, region.root, &Region::root);
    return it != others.end() && overlaps(region, *it);
  });
}

bool overlaps(const Region& a, const Region& b) {
  if (a.whole || b.whole) return true;
  return std::ranges::any_of(a.part.boxes, [&b](const Box& box) {
    return std::ranges::any_of(b.part.boxes,
                               [&box](const Box& other) { return intersection(box, other).has_value(); });
  });
}

bool contains(const Ir& ir, TensorId outer, TensorId inner) {
  const std::vector<Region> all = regions_of(ir, outer);
  return std::ranges::all_of(regions_of(ir, inner), [&all](const Region& region) {
    const auto it = std::ranges::find(all, region.root, &Region::root);
    return it != all.end() && holds(*it, region);
  });
}

std::vector<TensorId> aliases(const Ir& ir, TensorId tensor) {
  std::vector<TensorId> result{ir.tensor(tensor).memory.storage};
  for (const Region& region : regions_of(ir, tensor)) {
    std::vector<TensorId> others = ir.views(region.root);
    others.push_back(region.root);
    for (const TensorId other : others) {
      if (std::ranges::find(result, other) == result.end() && overlaps(ir, tensor, other)) {
        result.push_back(other);
      }
    }
  }
  return result;
}

}  // namespace popsr
