// Boxes against sets of elements, counted one by one.
#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <set>

#include "popsr/ir/view/boxes.h"

namespace popsr {
namespace {

using Elements = std::set<std::int64_t>;

/// C-order indices of the elements of a box.
Elements elements(const Box& box, const Shape& shape) {
  const Shape strides = row_major_strides(shape);
  Elements result{0};
  for (std::size_t d = 0; d < shape.size(); ++d) {
    Elements next;
    for (const std::int64_t base : result) {
      for (std::int64_t i = 0; i < box[d].count; ++i) {
        next.insert(base + (box[d].start + i * box[d].step) * strides[d]);
      }
    }
    result = std::move(next);
  }
  return result;
}

Elements elements(const std::vector<Box>& boxes, const Shape& shape) {
  Elements all;
  for (const Box& box : boxes) all.merge(elements(box, shape));
  return all;
}

Elements both(const Elements& a, const Elements& b) {
  Elements result;
  std::ranges::set_intersection(a, b, std::inserter(result, result.end()));
  return result;
}

class Random {
 public:
  explicit Random(std::uint32_t seed) : engine_(seed) {}
  std::int64_t operator()(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(engine_() % static_cast<std::uint64_t>(high - low + 1));
  }
  Shape shape(std::int64_t most) {
    Shape result(static_cast<std::size_t>((*this)(0, 3)));
    for (std::int64_t& extent : result) extent = (*this)(1, most);
    return result;
  }
  Box box(const Shape& shape) {
    Box result;
    for (const std::int64_t extent : shape) {
      const std::int64_t start = (*this)(0, extent - 1), step = (*this)(1, 3);
      result.push_back(make_span(start, (*this)(1, (extent - 1 - start) / step + 1), step));
    }
    return result;
  }
  /// Another shape of as many elements.
  Shape regrouped(const Shape& shape) {
    std::vector<std::int64_t> factors;
    for (std::int64_t extent : shape) {
      for (std::int64_t p = 2; extent > 1; ++p) {
        for (; extent % p == 0; extent /= p) factors.push_back(p);
      }
    }
    if ((*this)(0, 1) == 1) std::ranges::shuffle(factors, engine_);
    Shape result;
    for (const std::int64_t factor : factors) {
      if (result.empty() || (*this)(0, 1) == 1) {
        result.push_back(factor);
      } else {
        result.back() *= factor;
      }
      if ((*this)(0, 5) == 0) result.push_back(1);
    }
    return result;
  }

 private:
  std::mt19937 engine_;
};

TEST_CASE("boxes: set operations equal the operations on their elements") {
  Random random(1);
  int unions = 0;
  for (int k = 0; k < 20000; ++k) {
    const Shape shape = random.shape(9);
    const Box a = random.box(shape), b = random.box(shape);
    const Elements in_a = elements(a, shape), in_b = elements(b, shape), common = both(in_a, in_b);
    REQUIRE(static_cast<std::size_t>(num_elements(a)) == in_a.size());

    const std::optional<Box> met = intersection(a, b);
    REQUIRE(met.has_value() == !common.empty());
    if (met) REQUIRE(elements(*met, shape) == common);
    REQUIRE(contains(a, b) == (common == in_b));

    Elements left = in_a;
    for (const std::int64_t each : common) left.erase(each);
    const std::vector<Box> rest = difference(a, b);
    REQUIRE(elements(rest, shape) == left);
    std::int64_t count = 0;
    for (const Box& box : rest) count += num_elements(box);
    REQUIRE(static_cast<std::size_t>(count) == left.size());  // they do not overlap

    const Elements in_hull = elements(hull(a, b), shape);
    REQUIRE(std::ranges::includes(in_hull, in_a));
    REQUIRE(std::ranges::includes(in_hull, in_b));
    if (const std::optional<Box> joined = exact_union(a, b)) {
      ++unions;
      Elements all = in_a;
      all.insert(in_b.begin(), in_b.end());
      REQUIRE(elements(*joined, shape) == all);
    }
  }
  CHECK(unions > 2000);
}

TEST_CASE("boxes: what a difference takes apart, exact unions put together again") {
  const Box whole = whole_box({6, 8});
  for (const Box& cut : {Box{{0, 3, 1}, {0, 8, 1}}, Box{{0, 3, 2}, {0, 8, 1}}, Box{{0, 6, 1}, {5, 1, 1}}}) {
    std::vector<Box> boxes = difference(whole, cut);
    boxes.push_back(cut);
    while (boxes.size() > 1) {
      const std::optional<Box> joined = exact_union(boxes[boxes.size() - 1], boxes[boxes.size() - 2]);
      const std::optional<Box> ends = exact_union(boxes.back(), boxes.front());
      REQUIRE((joined || ends));
      const Box next = joined ? *joined : *ends;
      boxes.erase(joined ? boxes.end() - 2 : boxes.begin());
      boxes.back() = next;
    }
    CHECK(boxes.front() == whole);
  }
}

TEST_CASE("boxes: the same elements in coordinates of another shape") {
  Random random(2);
  int exact = 0, total = 0;
  for (int k = 0; k < 20000; ++k) {
    const Shape from = random.shape(8), to = random.regrouped(from);
    const Box box = random.box(from);
    const Boxes moved = reshaped(box, from, to);
    const Elements expected = elements(box, from), got = elements(moved.boxes, to);
    CAPTURE(to_string(from));
    CAPTURE(to_string(to));
    REQUIRE(moved.boxes.size() <= kMaxBoxes);
    REQUIRE(std::ranges::includes(got, expected));
    if (moved.exact) REQUIRE(got == expected);
    exact += moved.exact ? 1 : 0;
    ++total;
  }
  CHECK(exact * 10 > total * 9);
}

TEST_CASE("boxes: reshapes of models are one box") {
  struct Row {
    Box box;
    Shape from, to;
    Box expected;
  };
  const std::vector<Row> rows = {
      // one head of [batch * sequence, heads * width] seen as [batch, sequence, heads, width]
      {{{0, 4, 1}, {0, 16, 1}, {3, 1, 1}, {0, 64, 1}}, {4, 16, 8, 64}, {64, 512}, {{0, 64, 1}, {192, 64, 1}}},
      // columns of a matrix of 64 rows
      {{{0, 64, 1}, {2, 1, 1}}, {64, 6}, {8, 8, 6}, {{0, 8, 1}, {0, 8, 1}, {2, 1, 1}}},
      // the second half, flat
      {{{32, 32, 1}}, {64}, {2, 32}, {{1, 1, 1}, {0, 32, 1}}},
      // a column, flat
      {{{0, 100, 1}, {3, 1, 1}}, {100, 10}, {1000}, {{3, 100, 10}}},
      {{}, {}, {1, 1}, {{0, 1, 1}, {0, 1, 1}}},
      {{{0, 1, 1}, {0, 1, 1}}, {1, 1}, {}, {}},
  };
  for (const Row& row : rows) {
    const Boxes moved = reshaped(row.box, row.from, row.to);
    CHECK(moved.exact);
    REQUIRE(moved.boxes.size() == 1);
    CHECK(moved.boxes.front() == row.expected);
  }
}

TEST_CASE("boxes: spans of huge axes") {
  constexpr std::int64_t big = std::int64_t{1} << 61;
  const Box a{make_span(0, (big - 1) / 3, 3)}, b{make_span(1, (big - 1) / 7, 7)};
  const std::optional<Box> met = intersection(a, b);
  REQUIRE(met);
  CHECK(met->front().start == 15);
  CHECK(met->front().step == 21);
  CHECK(met->front().last() <= a.front().last());
  const Box c{make_span(0, 2, big / 2 + 1)}, d{make_span(0, 2, big / 2 - 1)};
  CHECK(intersection(c, d) == Box{make_span(0, 1)});
}

}  // namespace
}  // namespace popsr
