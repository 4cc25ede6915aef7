// Convolutions line by line, and the lines that they read, against one element after another.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <string_view>
#include <type_traits>
#include <vector>

#include "popsr/kernels/contract/kernel_table.h"
#include "popsr/kernels/loader.h"

using namespace popsr::kernels;

namespace {

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

template <class T>
std::vector<T> normals(std::mt19937& random, std::int64_t size) {
  std::normal_distribution<T> normal;
  std::vector<T> values(at(size));
  for (T& value : values) value = normal(random);
  return values;
}

/// `square`: the nine steps of a kernel of three lines, which levels compute otherwise.
template <class T>
void check_lines(std::mt19937& random, bool square) {
  const auto below = [&random](unsigned end) { return static_cast<std::int64_t>(random() % end); };
  const std::int64_t lines = below(20), n = below(70), k = square ? 9 : below(12), pitch = n + 2 + below(3);
  std::vector<std::int64_t> offset(at(k));
  for (std::int64_t i = 0; i < k; ++i) offset[at(i)] = square ? i / 3 * pitch + i % 3 : below(200);
  const std::vector<T> a = normals<T>(random, k + 1), x = normals<T>(random, (lines + 3) * pitch + 300);
  const std::int64_t row = n + 2;
  for (const std::string& level : available_levels()) {
    std::vector<T> expected(at(lines * row + 1), T{5});
    for (std::int64_t l = 0; l < lines; ++l)
      for (std::int64_t j = 0; j < n; ++j) {
        T sum = 0;
        for (std::int64_t q = 0; q < k; ++q) {
          const T value = x[at(offset[at(q)] + l * pitch + j)];
          const T product = a[at(q)] * value;
          sum = level == "v2" ? sum + product : std::fma(a[at(q)], value, sum);
        }
        expected[at(l * row + j)] = sum;
      }
    std::vector<T> c(expected.size(), T{5});
    const ConvLinesArgs args{.k = k,
                             .lines = lines,
                             .n = n,
                             .a = a.data(),
                             .x = x.data(),
                             .offset = offset.data(),
                             .x_line = pitch,
                             .c_line = row,
                             .c = c.data()};
    const KernelTable& table = kernel_table(level);
    (std::is_same_v<T, float> ? table.conv_lines_f32 : table.conv_lines_f64)(args);
    INFO(level, " ", lines, " lines of ", n, ", steps ", k, ", square ", square);
    CHECK(c == expected);
  }
}

template <class T>
void check_plane(std::mt19937& random) {
  const auto below = [&random](std::int64_t end) {
    return static_cast<std::int64_t>(random() % static_cast<unsigned>(end));
  };
  const std::int64_t lines = 1 + below(20), n = 1 + below(70), begin = below(lines),
                     end = begin + 1 + below(lines - begin);
  const std::vector<T> a = normals<T>(random, 9), x = normals<T>(random, lines * n);
  for (const std::string& level : available_levels()) {
    std::vector<T> expected(at(lines * n), T{5});
    for (std::int64_t l = begin; l < end; ++l)
      for (std::int64_t j = 0; j < n; ++j) {
        T sum = 0;
        for (std::int64_t i = 0; i < 9; ++i) {
          const std::int64_t y = l + i / 3 - 1, z = j + i % 3 - 1;
          const bool inside = y >= 0 && y < lines && z >= 0 && z < n;
          const T value = inside ? x[at(y * n + z)] : T{0}, product = a[at(i)] * value;
          sum = level == "v2" ? sum + product : std::fma(a[at(i)], value, sum);
        }
        expected[at(l * n + j)] = sum;
      }
    std::vector<T> c(expected.size(), T{5});
    const ConvPlaneArgs args{
        .lines = lines, .n = n, .begin = begin, .end = end, .a = a.data(), .x = x.data(), .c = c.data()};
    const KernelTable& table = kernel_table(level);
    (std::is_same_v<T, float> ? table.conv_plane_f32 : table.conv_plane_f64)(args);
    INFO(level, " lines ", begin, " to ", end, " of ", lines, " of ", n);
    CHECK(c == expected);
  }
}

template <class T>
void check_fill(std::mt19937& random) {
  const auto below = [&random](unsigned end) { return static_cast<std::int64_t>(random() % end); };
  const std::int64_t lines = 1 + below(5), n = 1 + below(70), step = 1 + below(3), pitch = n * step + 2;
  const std::int64_t before = below(3), after = below(3);
  // Nothing lies behind the last element, so that sanitizers see a read of it.
  const std::vector<T> from = normals<T>(random, (lines - 1) * pitch + (n - 1) * step + 1);
  std::vector<T> expected;
  for (std::int64_t l = 0; l < lines; ++l) {
    expected.insert(expected.end(), at(before), T{0});
    for (std::int64_t i = 0; i < n; ++i) expected.push_back(from[at(l * pitch + i * step)]);
    expected.insert(expected.end(), at(after), T{0});
  }
  for (const std::string& level : available_levels()) {
    std::vector<T> to(expected.size(), T{9});
    const FillLinesArgs args{.to = to.data(),
                             .from = from.data(),
                             .lines = lines,
                             .from_line = pitch,
                             .step = step,
                             .before = before,
                             .n = n,
                             .after = after};
    const KernelTable& table = kernel_table(level);
    (std::is_same_v<T, float> ? table.fill_lines_f32 : table.fill_lines_f64)(args);
    INFO(level, " ", lines, " lines of ", n, ", step ", step);
    CHECK(to == expected);
  }
}

}  // namespace

TEST_CASE("lines of a convolution are its chains") {
  std::mt19937 random(6);
  for (int i = 0; i < 120; ++i) {
    check_lines<float>(random, i % 2 == 0);
    check_lines<double>(random, i % 2 == 0);
  }
}

TEST_CASE("a plane is convolved as if zeros were around it") {
  std::mt19937 random(8);
  for (int i = 0; i < 150; ++i) {
    check_plane<float>(random);
    check_plane<double>(random);
  }
}

TEST_CASE("lines are filled with zeros around them") {
  std::mt19937 random(7);
  for (int i = 0; i < 200; ++i) {
    check_fill<float>(random);
    check_fill<double>(random);
  }
}
