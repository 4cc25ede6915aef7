#include "popsr/analysis/memory/memory_parts.h"

#include <algorithm>

namespace popsr {
namespace {

// More boxes than that become one that holds them.
constexpr std::size_t kMaxLeft = 64;

std::vector<Box> without(const std::vector<Box>& boxes, const Box& box) {
  std::vector<Box> result;
  for (const Box& each : boxes) {
    std::vector<Box> rest = difference(each, box);
    std::ranges::move(rest, std::back_inserter(result));
  }
  if (result.size() <= kMaxLeft) return result;
  Box all = result.front();
  for (const Box& each : result) all = hull(all, each);
  return {std::move(all)};
}

}  // namespace

PartId MemoryParts::number(const Region& region) {
  if (region.whole) return kWholePart;
  std::vector<std::vector<Box>>& known = parts_[region.root];
  const auto it = std::ranges::find(known, region.part.boxes);
  const PartId number(it - known.begin() + 1);
  if (it == known.end()) known.push_back(region.part.boxes);
  return number;
}

Region MemoryParts::region(TensorId root, PartId part) const {
  if (part != kWholePart) return {.root = root, .part = {parts_.at(root)[part.index() - 1]}};
  return {.root = root, .part = {{whole_box(ir_.tensor(root).type.shape)}}, .whole = true};
}

bool MemoryParts::touches(TensorId root, PartId part, TensorId tensor) const {
  const Region mine = region(root, part);
  const std::vector<Region> others = regions_of(ir_, tensor);
  return std::ranges::any_of(
      others, [&](const Region& other) { return other.root == root && overlaps(mine, other); });
}

std::optional<PartId> MemoryParts::rest(TensorId root, PartId part, TensorId tensor) {
  Region left = region(root, part);
  left.whole = false;
  for (const Region& other : regions_of(ir_, tensor)) {
    if (other.root != root) continue;
    if (other.whole) return std::nullopt;
    if (!other.part.exact) continue;  // some of its elements keep what they had
    for (const Box& box : other.part.boxes) left.part.boxes = without(left.part.boxes, box);
  }
  if (left.part.boxes.empty()) return std::nullopt;
  return left.part.boxes == region(root, part).part.boxes ? part : number(left);
}

}  // namespace popsr
