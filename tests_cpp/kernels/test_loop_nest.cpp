// Nests of loops: merging of dimensions, positions and copies, of any number of dimensions.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <random>
#include <vector>

#include "popsr/base/cost.h"
#include "popsr/base/layout/loop_nest.h"

namespace popsr {
namespace {

/// Offset of element `flat` in C order, dimension by dimension.
std::int64_t plain_offset(const Shape& shape, const Shape& strides, std::int64_t flat) {
  std::int64_t sum = 0;
  for (std::size_t d = shape.size(); d-- > 0;) {
    sum += flat % shape[d] * strides[d];
    flat /= shape[d];
  }
  return sum;
}

struct Merged {
  const char* name;
  Shape shape;
  std::vector<Shape> strides;
  std::vector<std::int64_t> extents;  ///< Innermost first.
};

}  // namespace

TEST_CASE("adjacent dimensions are one loop where all arrays allow it") {
  const Merged rows[] = {
      {"scalar", {}, {{}}, {1}},
      {"units", {1, 1, 1}, {{7, 5, 3}}, {1}},
      {"dense", {2, 3, 4}, {{12, 4, 1}}, {24}},
      {"unit between", {2, 1, 4}, {{4, 9, 1}}, {8}},
      {"repeated", {2, 3}, {{0, 0}}, {6}},
      {"padded rows", {2, 3, 4}, {{15, 5, 1}}, {4, 6}},
      {"transposed", {2, 3}, {{1, 2}}, {3, 2}},
      {"reversed", {2, 3}, {{-3, -1}}, {6}},
      {"one of two arrays repeats", {2, 3}, {{3, 1}, {0, 1}}, {3, 2}},
      {"both dense", {2, 3}, {{3, 1}, {12, 4}}, {6}},
      {"no elements", {0, 3}, {{3, 1}}, {0}},
  };
  for (const Merged& row : rows) {
    CAPTURE(row.name);
    const LoopNest nest(row.shape, row.strides);
    std::vector<std::int64_t> extents;
    for (std::size_t loop = 0; loop < nest.rank(); ++loop) extents.push_back(nest.extent(loop));
    CHECK(extents == row.extents);
    CHECK(nest.arrays() == row.strides.size());
    CHECK(nest.count() == num_elements(row.shape));
  }
}

TEST_CASE("positions of a nest are the offsets of its elements") {
  std::mt19937_64 random(21);
  const std::array<std::int64_t, 7> choices = {0, 1, 1, 2, -3, 40, 41};
  for (int trial = 0; trial < 2000; ++trial) {
    const std::size_t rank = random() % 12;
    Shape shape;
    std::array<Shape, 3> strides;
    for (std::size_t d = 0; d < rank; ++d) {
      shape.push_back(static_cast<std::int64_t>(1 + random() % (rank < 4 ? 9 : 2)));
      for (Shape& array : strides) array.push_back(choices[random() % choices.size()]);
    }
    strides[2] = row_major_strides(shape);
    const LoopNest nest(shape, strides);
    const std::int64_t count = nest.count();
    REQUIRE(count == num_elements(shape));
    CHECK(nest.contiguous(2, 1));
    const auto start = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(count));
    NestPosition at(nest, start);
    for (std::int64_t flat = start; flat < count;) {
      for (std::size_t array = 0; array < strides.size(); ++array) {
        REQUIRE(at.offset(array) == plain_offset(shape, strides[array], flat));
        REQUIRE(nest.offset(flat, array) == at.offset(array));
      }
      const std::int64_t most = std::min(at.left_in_row(), count - flat);
      const auto step = static_cast<std::int64_t>(1 + random() % static_cast<std::uint64_t>(most));
      at.advance(step);
      flat += step;
    }
  }
}

TEST_CASE("move_to finds what seek finds") {
  const Shape shape = {5, 4, 3};
  const std::array<Shape, 2> strides = {Shape{100, 10, 1}, Shape{0, 7, 0}};
  const LoopNest nest(shape, strides);
  REQUIRE(nest.rank() == 3);
  for (std::int64_t from = 0; from < 60; ++from) {
    for (std::int64_t to = from; to < 60; ++to) {
      NestPosition at(nest, from);
      at.move_to(to, to - from);
      REQUIRE(at.offset(0) == nest.offset(to, 0));
      REQUIRE(at.offset(1) == nest.offset(to, 1));
      REQUIRE(at.left_in_row() == 3 - to % 3);
    }
  }
}

TEST_CASE("copies between arrays of 20 dimensions that cannot be merged") {
  const std::size_t rank = 20;
  const Shape shape(rank, 2);
  Shape gapped(rank), reversed(rank);  // bytes, with gaps, and with the dimensions in reversed order
  for (std::size_t d = 0; d < rank; ++d) {
    gapped[d] = std::int64_t{2} << d;
    reversed[d] = std::int64_t{1} << d;
  }
  std::ranges::reverse(gapped);
  const std::array<Shape, 2> strides = {gapped, reversed};
  const LoopNest nest(shape, strides);
  CHECK(nest.rank() == rank);
  const std::int64_t count = nest.count();
  std::vector<std::byte> from(static_cast<std::size_t>(count) * 2), to(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 37 >> 3);
  copy_range(nest, to.data(), 1, from.data(), 0, 1, 0, count);
  for (std::int64_t i = 0; i < count; i += 997) {
    REQUIRE(to[static_cast<std::size_t>(nest.offset(i, 1))] ==
            from[static_cast<std::size_t>(nest.offset(i, 0))]);
  }
  std::vector<std::byte> range(1000);
  copy_range(nest, range.data(), kContiguous, from.data(), 0, 1, 12345, 1000);
  for (std::int64_t i = 0; i < 1000; ++i) {
    REQUIRE(range[static_cast<std::size_t>(i)] == from[static_cast<std::size_t>(nest.offset(12345 + i, 0))]);
  }
}

TEST_CASE("threads are as many as the work is worth") {
  struct Row {
    ThreadCost cost;
    std::int64_t work, units, threads, expect;
  };
  const Row rows[] = {
      {kElementWork, (1 << 15) - 1, 100, 8, 1}, {kElementWork, 1 << 15, 100, 8, 8},
      {kElementWork, 1 << 15, 3, 8, 3},         {kElementWork, 1 << 15, 0, 8, 1},
      {kProductWork, (2 << 20) - 1, 9, 8, 1},   {kProductWork, 2 << 20, 9, 8, 2},
      {kProductWork, 100 << 20, 9, 8, 8},       {kRoundingWork, 3 << 16, 8, 8, 3},
      {kValueBytes, 1 << 18, 8, 2, 2},          {kMergedBytes, 1 << 17, 8, 1, 1},
  };
  for (const Row& row : rows) {
    CAPTURE(row.work);
    CHECK(threads_for(row.cost, row.work, row.units, row.threads) == row.expect);
  }
}

}  // namespace popsr
