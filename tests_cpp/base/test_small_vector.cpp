// Short lists in place against std::vector, after random calls.
#include "popsr/base/containers/small_vector.h"

#include <doctest/doctest.h>

#include <random>
#include <utility>
#include <vector>

using namespace popsr;

namespace {

using Short = SmallVector<int, 3>;

void check_equal(const Short& got, const std::vector<int>& expected) {
  REQUIRE(got.size() == expected.size());
  CHECK(got.empty() == expected.empty());
  CHECK(std::equal(got.begin(), got.end(), expected.begin(), expected.end()));
  for (std::size_t i = 0; i < expected.size(); ++i) CHECK(got[i] == expected[i]);
  if (expected.empty()) return;
  CHECK(got.front() == expected.front());
  CHECK(got.back() == expected.back());
}

}  // namespace

TEST_CASE("small vector: as std::vector after random calls") {
  std::mt19937_64 random(1);
  const auto below = [&random](std::uint64_t n) { return static_cast<std::size_t>(random() % n); };
  for (int round = 0; round < 300; ++round) {
    Short got;
    std::vector<int> expected;
    for (int call = 0; call < 20; ++call) {
      const std::size_t n = below(8);
      const int value = static_cast<int>(below(100));
      const std::vector<int> more(n, value);
      switch (below(6)) {
        case 0:
          got.push_back(value);
          expected.push_back(value);
          break;
        case 1:
          got.append(more.begin(), more.end());
          expected.insert(expected.end(), more.begin(), more.end());
          break;
        case 2:
          got.resize(n);
          expected.resize(n);
          break;
        case 3:
          got.assign(n, value);
          expected.assign(n, value);
          break;
        case 4:
          got.reserve(n);
          break;
        default:
          got.clear();
          expected.clear();
      }
      check_equal(got, expected);
    }
  }
}

TEST_CASE("small vector: copies have elements of their own, and what was moved from is empty") {
  for (const std::size_t size : {0, 1, 3, 4, 9}) {
    CAPTURE(size);
    const std::vector<int> expected(size, 7);
    Short original(expected.begin(), expected.end());
    Short copy = original;
    CHECK(copy == original);
    copy.push_back(1);
    CHECK_FALSE(copy == original);
    check_equal(original, expected);
    Short moved = std::move(original);
    check_equal(moved, expected);
    check_equal(original, {});  // NOLINT(bugprone-use-after-move): it is to be empty
    original = moved;
    check_equal(original, expected);
    copy = std::move(original);
    check_equal(copy, expected);
    check_equal(original, {});  // NOLINT(bugprone-use-after-move): it is to be empty
    Short& same = copy;
    copy = same;
    check_equal(copy, expected);
    copy = std::move(same);
    check_equal(copy, expected);
  }
}
