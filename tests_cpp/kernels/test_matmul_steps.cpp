// Products accumulated step by step and summed over terms, against a scalar reference, bit for bit.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string_view>
#include <type_traits>
#include <vector>

#include "popsr/kernels/contract/kernel_table.h"
#include "popsr/kernels/loader.h"

namespace {

using popsr::kernels::AccumulationFactors;
using popsr::kernels::available_levels;
using popsr::kernels::kernel_table;
using popsr::kernels::KernelTable;
using popsr::kernels::MatmulArgs;

constexpr std::int64_t kGuard = 3;  ///< Untouched columns behind each row of C and of the starts.

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

template <class T>
struct Problem {
  std::int64_t m, n, k, terms, steps;
  bool transposed_a = false, transposed_b = false;
  double divisor = 1.0;
  bool in_place = false;  ///< C is the start of the last term.
  std::vector<std::vector<T>> a = {}, b = {}, start = {};
  std::vector<AccumulationFactors> factors = {};

  void fill(std::mt19937& random) {
    std::normal_distribution<T> normal;
    const auto vector_of = [&](std::int64_t size) {
      std::vector<T> values(at(size));
      for (T& value : values) value = normal(random);
      return values;
    };
    for (std::int64_t p = 0; p < terms * steps; ++p) {
      a.push_back(vector_of(m * k));
      b.push_back(vector_of(k * n));
      const auto factor = [&] { return static_cast<double>(static_cast<float>(normal(random))); };
      factors.push_back({.alpha = factor(), .beta = factor(), .overwrites = random() % 4 == 0});
    }
    for (std::int64_t p = 0; p < terms; ++p) {
      start.push_back(vector_of(m * (n + kGuard)));
      if (factors[at(p * steps)].overwrites) start.back()[0] = std::numeric_limits<T>::quiet_NaN();
    }
  }

  T chain(std::int64_t p, std::int64_t i, std::int64_t j, bool fused) const {
    T total = 0, sum = 0;
    for (std::int64_t x = 0; x < k; ++x) {
      if (k > 4096 && x % 1024 == 0) {
        total = x == 0 ? T{0} : x == 1024 ? sum : total + sum;
        sum = 0;
      }
      const T left = a[at(p)][at(transposed_a ? x * m + i : i * k + x)];
      const T right = b[at(p)][at(transposed_b ? j * k + x : x * n + j)];
      const T product = left * right;
      sum = fused ? std::fma(left, right, sum) : sum + product;
    }
    return k > 4096 ? total + sum : sum;
  }

  T expected(std::int64_t i, std::int64_t j, bool fused) const {
    T sum = 0;
    for (std::int64_t term = 0; term < terms; ++term) {
      T t = start[at(term)][at(i * (n + kGuard) + j)];
      for (std::int64_t p = term * steps; p < (term + 1) * steps; ++p) {
        const AccumulationFactors& f = factors[at(p)];
        const T x = chain(p, i, j, fused);
        t = f.overwrites ? x : static_cast<T>(f.alpha) * t + static_cast<T>(f.beta) * x;
      }
      sum = term == 0 ? t : sum + t;
    }
    return divisor == 1.0 ? sum : sum / static_cast<T>(divisor);
  }
};

template <class T>
std::vector<T> run(const KernelTable& table, const Problem<T>& problem, int parts) {
  std::vector<const void*> a, b, start;
  for (const auto& x : problem.a) a.push_back(x.data());
  for (const auto& x : problem.b) b.push_back(x.data());
  for (const auto& x : problem.start) start.push_back(x.data());
  std::vector<T> c = problem.start.back();
  if (problem.in_place) start.back() = c.data();
  MatmulArgs args;
  args.m = problem.m;
  args.n = problem.n;
  args.k = problem.k;
  args.a = a.data();
  args.b = b.data();
  args.a_row = problem.transposed_a ? 1 : problem.k;
  args.a_col = problem.transposed_a ? problem.m : 1;
  args.b_row = problem.transposed_b ? 1 : problem.n;
  args.b_col = problem.transposed_b ? problem.k : 1;
  args.c = c.data();
  args.c_row = problem.n + kGuard;
  args.terms = problem.terms;
  args.steps = problem.steps;
  args.start = start.data();
  args.factors = problem.factors.data();
  args.epilogue = MatmulArgs::Epilogue::kSteps;
  args.divisor = problem.divisor;
  struct alignas(64) Line {
    char bytes[64];
  };
  const std::size_t bytes = table.matmul_scratch(args, sizeof(T));
  CHECK(bytes <= (1u << 20));
  for (int part = 0; part < parts; ++part) {
    std::vector<Line> scratch((bytes + 63) / 64);
    (sizeof(T) == 4 ? table.matmul_f32 : table.matmul_f64)(args, part, parts, scratch.data());
  }
  return c;
}

/// Number of elements of C, and of the guard behind its rows, that are not as the reference says.
template <class T>
std::int64_t wrong(std::string_view level, const Problem<T>& problem, const std::vector<T>& got) {
  std::int64_t count = 0;
  const std::int64_t row = problem.n + kGuard;
  for (std::int64_t i = 0; i < problem.m; ++i) {
    for (std::int64_t j = 0; j < row; ++j) {
      const T want =
          j < problem.n ? problem.expected(i, j, level != "v2") : problem.start.back()[at(i * row + j)];
      count += std::memcmp(&got[at(i * row + j)], &want, sizeof(T)) == 0 ? 0 : 1;
    }
  }
  return count;
}

template <class T>
void check(const Problem<T>& problem) {
  CAPTURE(problem.m);
  CAPTURE(problem.n);
  CAPTURE(problem.k);
  CAPTURE(problem.terms);
  CAPTURE(problem.steps);
  CAPTURE(problem.transposed_a);
  CAPTURE(problem.transposed_b);
  for (const auto& level : available_levels()) {
    CAPTURE(level);
    for (const int parts : {1, 3})
      CHECK(wrong(level, problem, run(kernel_table(level), problem, parts)) == 0);
  }
}

}  // namespace

TEST_CASE_TEMPLATE("matmul takes the steps of each term, then sums the terms in ascending order", T, float,
                   double) {
  std::mt19937 random(20);
  for (const std::int64_t k : {0, 1, 8, 45}) {
    for (const auto& [terms, steps] : {std::pair{1, 1}, std::pair{1, 3}, std::pair{3, 1}, std::pair{3, 4}}) {
      for (const int layout : {0, 1, 2, 3}) {
        Problem<T> problem{21, 43, k, terms, steps};
        problem.transposed_a = layout % 2 == 1;
        problem.transposed_b = layout / 2 == 1;
        problem.divisor = k % 2 == 1 ? 1.0 : 3.0;
        problem.in_place = layout == 1;
        problem.fill(random);
        check(problem);
      }
    }
  }
}

TEST_CASE_TEMPLATE("matmul takes steps in blocks of rows and columns", T, float, double) {
  std::mt19937 random(21);
  for (const auto& [m, n] : {std::pair{200, 33}, std::pair{97, 64}, std::pair{1, 70}, std::pair{300, 1}}) {
    for (const bool transposed_b : {false, true}) {
      Problem<T> problem{m, n, 5, 2, 2};
      problem.transposed_a = true;
      problem.transposed_b = transposed_b;
      problem.in_place = true;
      problem.fill(random);
      check(problem);
    }
  }
}

TEST_CASE_TEMPLATE("matmul takes steps of long chains, and of products that write tiles transposed", T, float,
                   double) {
  std::mt19937 random(22);
  for (const std::int64_t k : {300, 1500, 5000}) {
    Problem<T> problem{9, 35, k, 2, 2};
    problem.transposed_b = true;
    problem.fill(random);
    check(problem);
  }
}
