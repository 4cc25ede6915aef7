#include "popsr/ir/view/boxes.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

namespace popsr {
namespace {

__extension__ using Wide = __int128;

/// Inverse of `a` modulo `m`, which have no common factor; 0 for m = 1.
std::int64_t inverse(std::int64_t a, std::int64_t m) {
  std::int64_t r = m, next_r = a % m, t = 0, next_t = 1;
  while (next_r != 0) {
    const std::int64_t q = r / next_r;
    t = std::exchange(next_t, t - q * next_t);
    r = std::exchange(next_r, r - q * next_r);
  }
  return (t % m + m) % m;
}

std::optional<Span> common_span(const Span& a, const Span& b) {
  if (a.count == 0 || b.count == 0) return std::nullopt;
  const std::int64_t common = std::gcd(a.step, b.step);
  const std::int64_t apart = b.start - a.start;
  if (apart % common != 0) return std::nullopt;
  const std::int64_t modulus = b.step / common;
  // Positions a.start + k * a.step that b would hold if it had no ends: k = k0, k0 + modulus, ...
  const Wide k0 =
      (Wide(apart / common % modulus + modulus) % modulus) * inverse(a.step / common, modulus) % modulus;
  const Wide period = Wide(a.step) * modulus;
  Wide first = a.start + k0 * a.step;
  if (first < b.start) first += (b.start - first + period - 1) / period * period;
  const std::int64_t end = std::min(a.last(), b.last());
  if (first > end) return std::nullopt;
  const auto count = static_cast<std::int64_t>((end - first) / period) + 1;
  return make_span(static_cast<std::int64_t>(first), count,
                   count == 1 ? 1 : static_cast<std::int64_t>(period));
}

/// `a` without `b`, which it holds.
std::vector<Span> difference(const Span& a, const Span& b) {
  std::vector<Span> result;
  const auto add = [&result, &a](std::int64_t first, std::int64_t count, std::int64_t every = 1) {
    if (count > 0) result.push_back(make_span(a.start + first * a.step, count, every * a.step));
  };
  const std::int64_t first = (b.start - a.start) / a.step;
  const std::int64_t last = (b.last() - a.start) / a.step;
  const std::int64_t every = b.count == 1 ? 1 : b.step / a.step;
  add(0, first);
  for (std::int64_t r = 1; r < every; ++r) add(first + r, b.count - 1, every);
  add(last + 1, a.count - 1 - last);
  return result;
}

std::optional<Span> exact_union(const Span& a, const Span& b) {
  if (common_span(a, b) == b) return a;
  if (common_span(a, b) == a) return b;
  const Span& low = a.start < b.start ? a : b;
  const Span& high = a.start < b.start ? b : a;
  const std::int64_t apart = high.start - low.start;
  // One after the other.
  const std::int64_t step = low.count > 1 ? low.step : high.count > 1 ? high.step : apart;
  if ((high.count == 1 || high.step == step) && high.start == low.last() + step) {
    return make_span(low.start, low.count + high.count, step);
  }
  // Each between two of the other.
  const bool alternate = low.step == 2 * apart && (high.count == 1 || high.step == low.step);
  if (low.count > 1 && alternate && (low.count == high.count || low.count == high.count + 1)) {
    return make_span(low.start, low.count + high.count, apart);
  }
  return std::nullopt;
}

std::int64_t product(std::span<const std::int64_t> extents) {
  return std::accumulate(extents.begin(), extents.end(), std::int64_t{1}, std::multiplies<>());
}

Box hull_of(const std::vector<Box>& boxes) {
  Box result = boxes.front();
  for (const Box& box : boxes) result = hull(result, box);
  return result;
}

/// Appends the positions of `flat`, counted in C order, in coordinates of the extents; `outer` comes first.
void split(const Span& flat, std::span<const std::int64_t> extents, const Box& outer, Boxes& result) {
  const auto with = [&outer](const Span& span) {
    Box box = outer;
    box.push_back(span);
    return box;
  };
  if (extents.size() == 1) {
    result.boxes.push_back(with(flat));
    return;
  }
  const std::span<const std::int64_t> inner = extents.subspan(1);
  const std::int64_t size = product(inner);
  const std::int64_t row = flat.start / size, rest = flat.start % size;
  if (flat.step % size == 0) {  // down a column
    return split({rest, 1, 1}, inner, with(make_span(row, flat.count, flat.step / size)), result);
  }
  const std::int64_t rows = flat.last() / size - row + 1;
  if (rows == 1) return split({rest, flat.count, flat.step}, inner, with({row, 1, 1}), result);
  if (size % flat.step == 0) {  // the same positions of each row, but for the first and the last
    const std::int64_t each = size / flat.step, from = rest / flat.step, phase = rest % flat.step;
    const std::int64_t head = from == 0 ? 0 : each - from;
    const std::int64_t full = (flat.count - head) / each, tail = (flat.count - head) % each;
    if (head > 0) split(make_span(rest, head, flat.step), inner, with({row, 1, 1}), result);
    const std::int64_t next = row + (head > 0 ? 1 : 0);
    if (full > 0) split(make_span(phase, each, flat.step), inner, with({next, full, 1}), result);
    if (tail > 0) split(make_span(phase, tail, flat.step), inner, with({next + full, 1, 1}), result);
    return;
  }
  if (rows > static_cast<std::int64_t>(kMaxBoxes)) {
    result.exact = false;
    return split(make_span(flat.start, flat.last() - flat.start + 1), extents, outer, result);
  }
  for (std::int64_t r = row; r < row + rows; ++r) {
    const std::optional<Span> part = common_span(flat, make_span(r * size, size));
    if (part)
      split(make_span(part->start - r * size, part->count, part->step), inner, with({r, 1, 1}), result);
  }
}

/// The positions of the box counted in C order, as spans.
struct Flat {
  std::vector<Span> spans = {};
  bool exact = true;
};

Flat flatten(std::span<const Span> box, std::span<const std::int64_t> extents) {
  std::int64_t offset = 0;
  std::vector<Span> axes;  // counts and steps in C order, from the innermost
  std::int64_t stride = 1;
  for (std::size_t d = box.size(); d-- > 0; stride *= extents[d]) {
    offset += box[d].start * stride;
    if (box[d].count == 1) continue;
    const std::int64_t step = box[d].step * stride;
    if (!axes.empty() && step == axes.back().step * axes.back().count) {
      axes.back().count *= box[d].count;
    } else {
      axes.push_back({0, box[d].count, step});
    }
  }
  if (axes.empty()) return {{make_span(offset, 1)}};
  const auto longest = std::ranges::max_element(axes, {}, &Span::count);
  const Span along = *longest;
  axes.erase(longest);
  Flat flat{{make_span(offset, along.count, along.step)}};
  for (const Span& axis : axes) {
    if (flat.spans.size() * static_cast<std::size_t>(std::min<std::int64_t>(axis.count, kMaxBoxes + 1)) >
        kMaxBoxes) {
      std::int64_t last = offset + (along.count - 1) * along.step;
      for (const Span& each : axes) last += (each.count - 1) * each.step;
      return {{make_span(offset, last - offset + 1)}, false};
    }
    std::vector<Span> next;
    for (std::int64_t i = 0; i < axis.count; ++i) {
      for (const Span& span : flat.spans) {
        next.push_back({span.start + i * axis.step, span.count, span.step});
      }
    }
    flat.spans = std::move(next);
  }
  return flat;
}

/// reshaped() of axes that share no extent.
Boxes reshape_group(std::span<const Span> box, std::span<const std::int64_t> from,
                    std::span<const std::int64_t> to) {
  Boxes result;
  const Flat flat = flatten(box, from);
  result.exact = flat.exact;
  if (to.empty()) {
    result.boxes.push_back({});
    return result;
  }
  for (const Span& span : flat.spans) split(span, to, {}, result);
  limit(result);
  return result;
}

}  // namespace

Span make_span(std::int64_t start, std::int64_t count, std::int64_t step) {
  if (count <= 1) return {start, count, 1};
  if (step < 0) return {start + (count - 1) * step, count, -step};
  return {start, count, step};
}

Box whole_box(const Shape& shape) {
  Box box;
  box.reserve(shape.size());
  for (const std::int64_t extent : shape) box.push_back({0, extent, 1});
  return box;
}

std::int64_t num_elements(const Box& box) {
  std::int64_t count = 1;
  for (const Span& span : box) count *= span.count;
  return count;
}

std::optional<Box> intersection(const Box& a, const Box& b) {
  Box result;
  result.reserve(a.size());
  for (std::size_t d = 0; d < a.size(); ++d) {
    const std::optional<Span> both = common_span(a[d], b[d]);
    if (!both) return std::nullopt;
    result.push_back(*both);
  }
  return result;
}

bool contains(const Box& outer, const Box& inner) {
  return is_empty(inner) || intersection(outer, inner) == inner;
}

std::vector<Box> difference(const Box& a, const Box& b) {
  if (is_empty(a)) return {};
  const std::optional<Box> both = intersection(a, b);
  if (!both) return {a};
  std::vector<Box> result;
  Box rest = a;  // inside b along the axes that were looked at
  for (std::size_t d = 0; d < a.size(); ++d) {
    for (const Span& part : difference(a[d], (*both)[d])) {
      result.push_back(rest);
      result.back()[d] = part;
    }
    rest[d] = (*both)[d];
  }
  return result;
}

Box hull(const Box& a, const Box& b) {
  Box result;
  for (std::size_t d = 0; d < a.size(); ++d) {
    const std::int64_t start = std::min(a[d].start, b[d].start);
    result.push_back(make_span(start, std::max(a[d].last(), b[d].last()) - start + 1));
  }
  return result;
}

std::optional<Box> exact_union(const Box& a, const Box& b) {
  if (contains(a, b)) return a;
  if (contains(b, a)) return b;
  std::optional<std::size_t> axis;
  for (std::size_t d = 0; d < a.size(); ++d) {
    if (a[d] == b[d]) continue;
    if (axis) return std::nullopt;
    axis = d;
  }
  const std::optional<Span> span = exact_union(a[*axis], b[*axis]);
  if (!span) return std::nullopt;
  Box result = a;
  result[*axis] = *span;
  return result;
}

Boxes reshaped(const Box& box, const Shape& from, const Shape& to) {
  if (is_empty(box)) return {};
  if (from == to) return {{box}};
  Boxes result{{Box{}}};
  std::size_t i = 0, j = 0;
  while (i < from.size() || j < to.size()) {
    const std::size_t first = i, first_to = j;
    std::int64_t p = i < from.size() ? from[i++] : 1, q = j < to.size() ? to[j++] : 1;
    while (p != q) {
      if (p < q) {
        p *= from[i++];
      } else {
        q *= to[j++];
      }
    }
    const Boxes group =
        reshape_group(std::span(box).subspan(first, i - first), std::span(from).subspan(first, i - first),
                      std::span(to).subspan(first_to, j - first_to));
    std::vector<Box> product;
    for (const Box& outer : result.boxes) {
      for (const Box& inner : group.boxes) {
        product.push_back(outer);
        product.back().insert(product.back().end(), inner.begin(), inner.end());
      }
    }
    result = {std::move(product), result.exact && group.exact};
    limit(result);
  }
  return result;
}

void limit(Boxes& boxes) {
  if (boxes.boxes.size() <= kMaxBoxes) return;
  boxes = {{hull_of(boxes.boxes)}, false};
}

}  // namespace popsr
