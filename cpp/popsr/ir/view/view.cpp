#include "popsr/ir/view/view.h"

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "popsr/ir/op_def.h"

namespace popsr {
namespace {

/// The range of `outer` at the positions of `inner`.
Range range_of(const Range& outer, const Range& inner) {
  return {outer.start + outer.step * inner.start, outer.step * inner.step, inner.count};
}

bool covers(const ViewPart& part, const Shape& input) {
  if (part.same_order) return true;
  for (std::size_t d = 0; d < input.size(); ++d) {
    if (part.ranges[d].count != input[d]) return false;
  }
  return true;
}

/// Composition: `inner` is a part of a tensor of shape `whole`, with shape `middle`, and `outer` is a part
/// of that. Returns the part of the whole tensor, nullopt if it has no such form; a range may be empty.
std::optional<ViewPart> compose(const ViewPart& outer, const Shape& output, const ViewPart& inner,
                                const Shape& middle, const Shape& whole) {
  if (outer.same_order && inner.same_order) return outer;
  if (inner.same_order && middle == whole) return outer;
  if (outer.same_order && output == middle) return inner;
  if (outer.same_order || inner.same_order) return std::nullopt;
  ViewPart result = inner;
  result.axes.clear();
  result.at = outer.at;
  for (std::size_t d = 0; d < outer.axes.size(); ++d) {
    const std::size_t m = outer.axes[d];
    const Range& range = outer.ranges[m];
    Range& target = result.ranges[inner.axes[m]];
    result.axes.push_back(inner.axes[m]);
    // Positions of the outer range that the inner part covers.
    const Span span = make_span(range.start, range.count, range.step);
    const std::optional<Box> both = intersection({span}, {make_span(inner.at[m], target.count)});
    if (range.count == 0 || !both) {
      target.count = 0;
      continue;
    }
    const Span& here = both->front();
    const std::int64_t first = range.step > 0 ? here.start : here.last();
    result.at[d] += (first - range.start) / range.step;
    target = range_of(target, {first - inner.at[m], range.step, here.count});
  }
  return result;
}

bool is_empty(const ViewPart& part) {
  return std::ranges::any_of(part.ranges, [](const Range& range) { return range.count == 0; });
}

/// Views of more parts than that are not traced back further.
constexpr std::size_t kMaxParts = 64;

/// One part of a view, traced back through the view that its base may be; false when that cannot be done.
bool trace(const Ir& ir, const Shape& output, TensorId base, const ViewPart& part, View& view) {
  const View* const under = view_of(ir, base);
  if (under == nullptr || view.bases.size() + under->bases.size() > kMaxParts) return false;
  const Shape& middle = ir.tensor(base).type.shape;
  std::vector<ViewPart> parts;
  for (std::size_t k = 0; k < under->bases.size(); ++k) {
    const Shape& whole = ir.tensor(under->bases[k]).type.shape;
    std::optional<ViewPart> direct = compose(part, output, under->parts[k], middle, whole);
    if (!direct) return false;
    parts.push_back(std::move(*direct));
  }
  for (std::size_t k = 0; k < parts.size(); ++k) {
    if (is_empty(parts[k])) continue;
    view.bases.push_back(under->bases[k]);
    view.parts.push_back(std::move(parts[k]));
  }
  return true;
}

class RegionBuilder {
 public:
  explicit RegionBuilder(const Ir& ir) : ir_(ir) {}

  /// All of a tensor's memory.
  void add(TensorId tensor) {
    for (Region& region : regions_of(ir_, tensor)) add(region.root, std::move(region.part));
  }

  /// A part of a tensor, followed down to roots.
  void add(TensorId tensor, const Box& box) {
    struct Step {
      TensorId storage;
      Box box;
      bool exact;
    };
    std::vector<Step> steps{{ir_.tensor(tensor).memory.storage, box, true}};
    while (!steps.empty()) {
      const Step step = std::move(steps.back());
      steps.pop_back();
      const Tensor& view = ir_.tensor(step.storage);
      if (!view.memory.view) {
        add(step.storage, {{step.box}, step.exact});
        continue;
      }
      for (std::size_t k = 0; k < view.memory.view->bases.size(); ++k) {
        const Tensor& base = ir_.tensor(view.memory.view->bases[k]);
        Boxes parts = in_input(view.memory.view->parts[k], step.box, view.type.shape, base.type.shape);
        for (Box& part : parts.boxes) {
          steps.push_back({base.memory.storage, std::move(part), step.exact && parts.exact});
        }
      }
    }
  }

  void finish(View& view) {
    for (Region& region : regions_) {
      limit(region.part);
      const Box all = whole_box(ir_.tensor(region.root).type.shape);
      region.whole = region.part.exact && region.part.boxes.size() == 1 && region.part.boxes[0] == all;
    }
    view.regions = std::move(regions_);
    view.repeats |= repeats_;
  }

 private:
  void add(TensorId root, Boxes part) {
    std::erase_if(part.boxes, [](const Box& box) { return is_empty(box); });
    if (part.boxes.empty()) return;
    const auto it = std::ranges::find(regions_, root, &Region::root);
    if (it == regions_.end()) {
      regions_.push_back({.root = root, .part = std::move(part)});
      return;
    }
    for (Box& box : part.boxes) {
      const auto meets = [&box](const Box& other) { return intersection(box, other).has_value(); };
      if (it->part.exact && part.exact && std::ranges::any_of(it->part.boxes, meets)) repeats_ = true;
      merge(it->part.boxes, std::move(box));
    }
    it->part.exact &= part.exact;
  }

  static void merge(std::vector<Box>& boxes, Box box) {
    for (std::size_t i = 0; i < boxes.size(); ++i) {
      std::optional<Box> both = exact_union(boxes[i], box);
      if (!both) continue;
      boxes.erase(boxes.begin() + static_cast<std::ptrdiff_t>(i));
      return merge(boxes, std::move(*both));
    }
    boxes.push_back(std::move(box));
  }

  const Ir& ir_;
  std::vector<Region> regions_;
  bool repeats_ = false;
};

}  // namespace

std::shared_ptr<const View> make_view(const Ir& ir, const Op& op) {
  View view;
  const Shape& output = ir.tensor(op.outputs[0]).type.shape;
  std::vector<ViewPart> parts = op.def->memory.view(ir, op);
  for (std::size_t k = 0; k < parts.size(); ++k) {
    const TensorId base = ir.tensor(op.inputs[k]).memory.storage;
    if (is_empty(parts[k]) || trace(ir, output, base, parts[k], view)) continue;
    view.bases.push_back(base);
    view.parts.push_back(std::move(parts[k]));
  }
  RegionBuilder regions(ir);
  for (std::size_t k = 0; k < view.bases.size(); ++k) {
    const ViewPart& part = view.parts[k];
    const View* const under = view_of(ir, view.bases[k]);
    view.repeats |= under != nullptr && under->repeats;
    if (covers(part, ir.tensor(view.bases[k]).type.shape)) {
      regions.add(view.bases[k]);
      continue;
    }
    Box box;
    for (const Range& range : part.ranges) box.push_back(make_span(range.start, range.count, range.step));
    regions.add(view.bases[k], box);
  }
  regions.finish(view);
  return std::make_shared<const View>(std::move(view));
}

Boxes in_input(const ViewPart& part, const Box& box, const Shape& output, const Shape& input) {
  if (part.same_order) return reshaped(box, output, input);
  Box result(input.size());
  for (std::size_t d = 0; d < output.size(); ++d) {
    const Range& range = part.ranges[part.axes[d]];
    const std::optional<Box> here = intersection({box[d]}, {make_span(part.at[d], range.count)});
    if (!here) return {};
    const Span& span = here->front();
    const Range at = range_of(range, {span.start - part.at[d], span.step, span.count});
    result[part.axes[d]] = make_span(at.start, at.count, at.step);
  }
  return {{std::move(result)}};
}

Boxes in_output(const ViewPart& part, const Box& box, const Shape& output, const Shape& input) {
  if (part.same_order) return reshaped(box, input, output);
  std::vector<bool> shown(input.size(), false);
  Box result(output.size());
  const auto common = [&](std::size_t axis) {
    const Range& range = part.ranges[axis];
    return intersection({box[axis]}, {make_span(range.start, range.count, range.step)});
  };
  for (std::size_t d = 0; d < output.size(); ++d) {
    const std::optional<Box> here = common(part.axes[d]);
    if (!here) return {};
    shown[part.axes[d]] = true;
    const Span& span = here->front();
    const Range& range = part.ranges[part.axes[d]];
    const std::int64_t first = range.step > 0 ? span.start : span.last();
    const std::int64_t step = span.count == 1 ? 1 : span.step / std::abs(range.step);
    result[d] = make_span(part.at[d] + (first - range.start) / range.step, span.count, step);
  }
  for (std::size_t axis = 0; axis < input.size(); ++axis) {
    if (!shown[axis] && !common(axis)) return {};
  }
  return {{std::move(result)}};
}

std::vector<Region> regions_of(const Ir& ir, TensorId tensor) {
  if (const View* const view = view_of(ir, tensor)) return view->regions;
  const TensorId root = ir.tensor(tensor).memory.storage;
  Box all = whole_box(ir.tensor(root).type.shape);
  if (is_empty(all)) return {};
  return {{.root = root, .part = {{std::move(all)}}, .whole = true}};
}

}  // namespace popsr
