// Views of dense tensors: composed and inverted ones against the elements that they name.
#include "popsr/base/layout/strided_view.h"

#include <doctest/doctest.h>

#include <numeric>
#include <random>
#include <vector>

using namespace popsr;

namespace {

/// The positions of a view's elements, in C order of its indices.
std::vector<std::int64_t> positions(const StridedView& view) {
  std::vector<std::int64_t> found{view.offset};
  for (std::size_t d = 0; d < view.shape.size(); ++d) {
    std::vector<std::int64_t> next;
    for (const std::int64_t at : found) {
      for (std::int64_t i = 0; i < view.shape[d]; ++i) next.push_back(at + i * view.strides[d]);
    }
    found = std::move(next);
  }
  return found;
}

std::int64_t draw(std::mt19937_64& random, std::int64_t below) {
  return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(below));
}

/// A dense tensor of that shape, with axes permuted, cut and perhaps repeated.
StridedView random_view(std::mt19937_64& random, const Shape& shape, bool cut) {
  const StridedView dense = dense_view(shape);
  std::vector<std::size_t> axes(shape.size());
  std::iota(axes.begin(), axes.end(), std::size_t{0});
  std::ranges::shuffle(axes, random);
  StridedView view{.shape = {}, .strides = {}, .offset = 0};
  for (const std::size_t d : axes) {
    const std::int64_t first = cut ? draw(random, shape[d]) : 0;
    const std::int64_t step = cut ? 1 + draw(random, 2) : 1;
    view.offset += first * dense.strides[d];
    view.shape.push_back((shape[d] - first + step - 1) / step);
    view.strides.push_back(step * dense.strides[d]);
    if (cut && random() % 4 == 0) {
      view.shape.push_back(2);
      view.strides.push_back(0);
    }
  }
  return view;
}

Shape random_shape(std::mt19937_64& random) {
  Shape shape(1 + random() % 4);
  for (std::int64_t& size : shape) size = 1 + draw(random, 4);
  return shape;
}

/// A shape of the same elements: two neighbouring axes as one.
Shape with_axes_joined(std::mt19937_64& random, Shape shape) {
  if (shape.size() < 2) return shape;
  const std::size_t d = random() % (shape.size() - 1);
  shape[d] *= shape[d + 1];
  shape.erase(shape.begin() + static_cast<std::ptrdiff_t>(d) + 1);
  return shape;
}

}  // namespace

TEST_CASE("strided views: a view of a view names the elements of both") {
  std::mt19937_64 random(20261127);
  int composed = 0;
  for (int round = 0; round < 5000; ++round) {
    const StridedView inner = random_view(random, random_shape(random), true);
    const Shape shape = round % 2 == 0 ? inner.shape : with_axes_joined(random, inner.shape);
    const StridedView outer = random_view(random, shape, true);
    const std::optional<StridedView> both = compose(outer, inner);
    if (!both) continue;
    ++composed;
    const std::vector<std::int64_t> through = positions(inner);
    std::vector<std::int64_t> expected;
    for (const std::int64_t at : positions(outer)) expected.push_back(through[static_cast<std::size_t>(at)]);
    REQUIRE(both->shape == outer.shape);
    REQUIRE(positions(*both) == expected);
  }
  CHECK(composed > 3000);
}

TEST_CASE("strided views: what is written through the inverse of a permutation is the copy") {
  std::mt19937_64 random(20261128);
  int inverted = 0;
  for (int round = 0; round < 5000; ++round) {
    const Shape shape = random_shape(random);
    const StridedView permutation = random_view(random, shape, false);
    const std::optional<StridedView> writes = inverse(permutation, shape);
    if (!writes) continue;
    ++inverted;
    // Element i of the dense tensor goes to the place where the copy has it.
    const std::vector<std::int64_t> read = positions(permutation), written = positions(*writes);
    REQUIRE(written.size() == read.size());
    for (std::size_t i = 0; i < read.size(); ++i) {
      REQUIRE(written[static_cast<std::size_t>(read[i])] == static_cast<std::int64_t>(i));
    }
  }
  CHECK(inverted > 4000);
}

TEST_CASE("strided views: none is composed of nothing") {
  CHECK(!compose(dense_view({0, 2}), dense_view({2, 0})));
  CHECK(!inverse(dense_view({2, 0}), {0, 2}));
}

TEST_CASE("strided views: a cut or a repeated tensor has no inverse") {
  CHECK(!inverse({.shape = {2, 2}, .strides = {4, 1}, .offset = 0}, {2, 3}));
  CHECK(!inverse({.shape = {2, 2}, .strides = {4, 1}, .offset = 0}, {2, 2}));
  CHECK(!inverse({.shape = {2, 3}, .strides = {0, 1}, .offset = 0}, {2, 3}));
  CHECK(!inverse({.shape = {3}, .strides = {1}, .offset = 1}, {3}));
}
