// The matrix product against a scalar reference, bit for bit, at every level this machine can run.
#include <doctest/doctest.h>

#include <Eigen/Core>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <vector>

#include "popsr/kernels/contract/kernel_table.h"
#include "popsr/kernels/loader.h"

namespace {

using popsr::kernels::available_levels;
using popsr::kernels::kernel_table;
using popsr::kernels::KernelTable;
using popsr::kernels::MatmulArgs;
using Epilogue = MatmulArgs::Epilogue;

constexpr std::int64_t kGuard = 3;  ///< Untouched columns behind each row of C.

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

bool fused(std::string_view level) { return level != "v2"; }

template <class T>
auto function_of(const KernelTable& table) {
  if constexpr (std::is_same_v<T, float>) {
    return table.matmul_f32;
  } else {
    return table.matmul_f64;
  }
}

/// Equal bits, except that all NaNs are one value.
template <class T>
bool same(T a, T b) {
  using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
  return (std::isnan(a) && std::isnan(b)) || std::bit_cast<Bits>(a) == std::bit_cast<Bits>(b);
}

/// A problem with its own operands. `odd` shifts every pointer off any vector alignment.
template <class T>
struct Problem {
  std::int64_t m, n, k, terms = 1;
  bool transposed_a = false, transposed_b = false;
  Epilogue epilogue = Epilogue::kStore;
  double divisor = 1.0, alpha = 1.0, beta = 1.0;
  std::int64_t odd = 0;
  std::vector<std::vector<T>> a = {}, b = {};
  std::vector<T> c = {};

  T& a_at(std::int64_t p, std::int64_t i, std::int64_t kk) {
    return a[at(p)][at(odd + (transposed_a ? kk * m + i : i * k + kk))];
  }
  T& b_at(std::int64_t p, std::int64_t kk, std::int64_t j) {
    return b[at(p)][at(odd + (transposed_b ? j * k + kk : kk * n + j))];
  }
  T c_at(const std::vector<T>& from, std::int64_t i, std::int64_t j) const {
    return from[at(odd + i * (n + kGuard) + j)];
  }

  void fill(std::mt19937& random) {
    std::normal_distribution<T> normal;
    const auto vector_of = [&](std::int64_t size) {
      std::vector<T> values(at(size + odd));
      for (T& value : values) value = normal(random);
      return values;
    };
    for (std::int64_t p = 0; p < terms; ++p) {
      a.push_back(vector_of(m * k));
      b.push_back(vector_of(k * n));
    }
    c = vector_of(m * (n + kGuard));
  }
};

template <class T>
T chain(Problem<T>& problem, std::int64_t p, std::int64_t i, std::int64_t j, bool fma) {
  const auto run = [&](std::int64_t begin, std::int64_t end) {
    T sum = 0;
    for (std::int64_t kk = begin; kk < end; ++kk) {
      const T x = problem.a_at(p, i, kk), y = problem.b_at(p, kk, j);
      if (fma) {
        sum = std::fma(x, y, sum);
      } else {
        const T product = x * y;
        sum = sum + product;
      }
    }
    return sum;
  };
  if (problem.k <= 4096) return run(0, problem.k);
  T total = run(0, 1024);
  for (std::int64_t kk = 1024; kk < problem.k; kk += 1024)
    total = total + run(kk, std::min(kk + 1024, problem.k));
  return total;
}

template <class T>
T expected(Problem<T>& problem, std::int64_t i, std::int64_t j, bool fma) {
  T x = problem.terms > 0 ? chain(problem, 0, i, j, fma) : T{0};
  for (std::int64_t p = 1; p < problem.terms; ++p) x = x + chain(problem, p, i, j, fma);
  if (problem.epilogue == Epilogue::kReduce && problem.divisor != 1.0)
    x = x / static_cast<T>(problem.divisor);
  if (problem.epilogue == Epilogue::kScaledAdd) {
    const T old = static_cast<T>(problem.alpha) * problem.c_at(problem.c, i, j);
    const T scaled = static_cast<T>(problem.beta) * x;
    x = old + scaled;
  }
  return x;
}

/// Runs the kernel in `parts` parts on a copy of C.
template <class T>
std::vector<T> run(const KernelTable& table, const Problem<T>& problem, int parts) {
  std::vector<const void*> a, b;
  for (const auto& x : problem.a) a.push_back(x.data() + problem.odd);
  for (const auto& x : problem.b) b.push_back(x.data() + problem.odd);
  std::vector<T> c = problem.c;
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
  args.c = c.data() + problem.odd;
  args.c_row = problem.n + kGuard;
  args.terms = problem.terms;
  args.epilogue = problem.epilogue;
  args.divisor = problem.divisor;
  args.alpha = problem.alpha;
  args.beta = problem.beta;
  struct alignas(64) Line {
    char bytes[64];
  };
  const std::size_t bytes = table.matmul_scratch(args, sizeof(T));
  CHECK(bytes <= (4u << 20));
  for (int part = 0; part < parts; ++part) {
    std::vector<Line> scratch((bytes + 63) / 64);
    function_of<T>(table)(args, part, parts, scratch.data());
  }
  return c;
}

/// Number of elements of C (and of the guard behind its rows) that are not as the reference says.
template <class T>
std::int64_t wrong(std::string_view level, Problem<T>& problem, const std::vector<T>& got) {
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < problem.m; ++i) {
    for (std::int64_t j = 0; j < problem.n + kGuard; ++j) {
      const T want = j < problem.n ? expected(problem, i, j, fused(level)) : problem.c_at(problem.c, i, j);
      count += same(problem.c_at(got, i, j), want) ? 0 : 1;
    }
  }
  return count;
}

template <class T>
void check(Problem<T>& problem) {
  CAPTURE(problem.m);
  CAPTURE(problem.n);
  CAPTURE(problem.k);
  CAPTURE(problem.terms);
  CAPTURE(problem.transposed_a);
  CAPTURE(problem.transposed_b);
  CAPTURE(static_cast<int>(problem.epilogue));
  for (const auto& level : available_levels()) {
    CAPTURE(level);
    const std::vector<T> whole = run(kernel_table(level), problem, 1);
    CHECK(wrong(level, problem, whole) == 0);
    for (int parts = 2; parts <= 3; ++parts) {
      const std::vector<T> split = run(kernel_table(level), problem, parts);
      std::int64_t different = 0;
      for (std::size_t i = 0; i < whole.size(); ++i) different += same(whole[i], split[i]) ? 0 : 1;
      CHECK(different == 0);
    }
  }
}

template <class T>
void set_epilogue(Problem<T>& problem, int variant) {
  problem.epilogue = variant == 0   ? Epilogue::kStore
                     : variant <= 2 ? Epilogue::kReduce
                                    : Epilogue::kScaledAdd;
  if (variant == 2) problem.divisor = 3.0;
  if (variant == 4) problem.alpha = 0.9;
  if (variant >= 4) problem.beta = -0.1;
}
constexpr int kVariants = 6;

/// Calls f for the four storage orders.
template <class F>
void each_layout(F f) {
  for (const bool transposed_a : {false, true})
    for (const bool transposed_b : {false, true}) f(transposed_a, transposed_b);
}

TEST_CASE_TEMPLATE("matmul equals the scalar chain for every layout, epilogue and odd size", T, float,
                   double) {
  std::mt19937 random(7);
  std::uniform_int_distribution<std::int64_t> size(1, 40);
  const std::int64_t edges[] = {1, 2, 7, 8, 13, 16, 17, 31, 32, 33, 37};
  each_layout([&](bool transposed_a, bool transposed_b) {
    for (int round = 0; round < 36; ++round) {
      const auto pick = [&] { return round % 2 ? size(random) : edges[at(size(random)) % std::size(edges)]; };
      Problem<T> problem{pick(), pick(), round % 9 == 0 ? round % 2 : pick()};
      problem.transposed_a = transposed_a;
      problem.transposed_b = transposed_b;
      problem.odd = round % 4;
      set_epilogue(problem, round % kVariants);
      problem.fill(random);
      check(problem);
    }
  });
}

TEST_CASE_TEMPLATE("matmul equals the scalar chain in every blocking path", T, float, double) {
  // {m, n, k}: packed panels and rows, several blocks of rows, streaming, row and column splits; panels that
  // are copied ahead, with ends of chains and of rows.
  const std::int64_t shapes[][3] = {{150, 70, 33}, {300, 10, 40},   {12, 200, 64},   {65, 140, 300},
                                    {200, 90, 3},  {1, 130, 50},    {70, 1, 50},     {5, 300, 20},
                                    {30, 301, 70}, {26, 260, 1300}, {130, 267, 1030}};
  std::mt19937 random(8);
  int variant = 0;
  for (const auto& shape : shapes) {
    each_layout([&](bool transposed_a, bool transposed_b) {
      Problem<T> problem{shape[0], shape[1], shape[2]};
      problem.transposed_a = transposed_a;
      problem.transposed_b = transposed_b;
      problem.odd = 1;
      set_epilogue(problem, variant++ % kVariants);
      problem.fill(random);
      check(problem);
    });
  }
}

TEST_CASE_TEMPLATE("matmul cuts chains above 4096 into blocks of 1024", T, float, double) {
  std::mt19937 random(9);
  int variant = 0;
  for (const std::int64_t k : {4096, 4097, 9000}) {
    each_layout([&](bool transposed_a, bool transposed_b) {
      Problem<T> problem{transposed_a ? 3 : 14, transposed_b ? 3 : 19, k};
      problem.transposed_a = transposed_a;
      problem.transposed_b = transposed_b;
      set_epilogue(problem, variant++ % kVariants);
      if (problem.epilogue == Epilogue::kReduce) problem.terms = 2;
      problem.fill(random);
      check(problem);
    });
  }
}

TEST_CASE_TEMPLATE("matmul pauses long chains without a change", T, float, double) {
  std::mt19937 random(16);
  int variant = 0;
  for (const std::int64_t k : {1025, 1500, 2048}) {
    each_layout([&](bool transposed_a, bool transposed_b) {
      Problem<T> problem{15, 130, k};
      problem.transposed_a = transposed_a;
      problem.transposed_b = transposed_b;
      set_epilogue(problem, variant++ % kVariants);
      if (problem.epilogue == Epilogue::kReduce) problem.terms = 2;
      problem.fill(random);
      check(problem);
    });
  }
}

TEST_CASE_TEMPLATE("matmul terms in ascending order", T, float, double) {
  std::mt19937 random(10);
  for (const std::int64_t terms : {0, 1, 2, 3, 8, 300}) {
    for (const std::int64_t k : {0, 1, 2, 8, 9, 40}) {
      if (terms == 300 && k > 8) continue;
      each_layout([&](bool transposed_a, bool transposed_b) {
        Problem<T> problem{terms == 300 ? 7 : 21, terms == 300 ? 35 : 43, k, terms};
        problem.transposed_a = transposed_a;
        problem.transposed_b = transposed_b;
        problem.epilogue = Epilogue::kReduce;
        problem.divisor = k % 2 ? 1.0 : static_cast<double>(terms);
        problem.fill(random);
        check(problem);
      });
    }
  }
}

TEST_CASE_TEMPLATE("matmul packs long sums in steps and many rows in blocks", T, float, double) {
  std::mt19937 random(11);
  Problem<T> problem{90, 9, 8, 280};
  problem.transposed_a = true;
  problem.epilogue = Epilogue::kReduce;
  problem.divisor = 280.0;
  problem.fill(random);
  check(problem);
}

TEST_CASE_TEMPLATE("matmul of no rows or no columns touches nothing", T, float, double) {
  std::mt19937 random(12);
  for (const auto& [m, n] : {std::pair{0, 5}, std::pair{5, 0}, std::pair{0, 0}}) {
    for (const std::int64_t terms : {0, 1, 3}) {
      Problem<T> problem{m, n, 4, terms};
      problem.epilogue = Epilogue::kReduce;
      problem.fill(random);
      check(problem);
    }
  }
}

TEST_CASE_TEMPLATE("a row of a product does not depend on the other rows", T, float, double) {
  std::mt19937 random(13);
  for (const bool transposed_b : {false, true}) {
    Problem<T> all{97, 75, 61};
    all.transposed_b = transposed_b;
    all.fill(random);
    for (const auto& level : available_levels()) {
      const KernelTable& table = kernel_table(level);
      const std::vector<T> whole = run(table, all, 1);
      for (std::int64_t i = 0; i < all.m; i += 8) {
        Problem<T> one = all;
        one.m = 1;
        one.a[0].assign(all.a[0].begin() + i * all.k, all.a[0].begin() + (i + 1) * all.k);
        const std::vector<T> row = run(table, one, 1);
        for (std::int64_t j = 0; j < all.n; ++j) REQUIRE(same(all.c_at(whole, i, j), one.c_at(row, 0, j)));
      }
    }
  }
}

/// Puts NaN, infinities, signed zeros and numbers that underflow into some rows and columns.
template <class T>
void poison(Problem<T>& problem) {
  using Limits = std::numeric_limits<T>;
  const T special[] = {Limits::quiet_NaN(), Limits::infinity(), -Limits::infinity(), T{-0.0}, -Limits::min()};
  for (std::int64_t p = 0; p < problem.terms; ++p) {
    for (std::int64_t x = 0; x < 5; ++x) {
      for (std::int64_t kk = 0; kk < problem.k; ++kk) {
        if (x >= 3 || kk == p % problem.k) problem.a_at(p, 2 * x, kk) = special[x];
        if (x >= 3 || kk == p % problem.k) problem.b_at(p, kk, 3 * x) = x == 4 ? Limits::min() : special[x];
      }
    }
  }
}

TEST_CASE_TEMPLATE("matmul keeps NaN, infinities and signed zeros as the chain gives them", T, float,
                   double) {
  std::mt19937 random(14);
  each_layout([&](bool transposed_a, bool transposed_b) {
    for (const std::int64_t terms : {1, 3}) {
      for (const std::int64_t k : {1, 2, 20}) {
        Problem<T> problem{11, 21, k, terms};
        problem.transposed_a = transposed_a;
        problem.transposed_b = transposed_b;
        problem.epilogue = Epilogue::kReduce;
        problem.fill(random);
        poison(problem);
        check(problem);
        if (terms > 1) continue;
        problem.epilogue = Epilogue::kScaledAdd;
        problem.alpha = -1.0;
        for (T& c : problem.c) c = 0;
        check(problem);
      }
    }
  });
}

TEST_CASE("matmul accepts any stride along an extent of one") {
  for (const auto& level : available_levels()) {
    const std::vector<float> a = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, b = a;
    for (const auto& [m, n, k] :
         {std::tuple{3, 1, 3}, std::tuple{9, 1, 2}, std::tuple{1, 3, 3}, std::tuple{3, 3, 1}}) {
      const void *pa = a.data(), *pb = b.data();
      MatmulArgs args;
      args.m = m;
      args.n = n;
      args.k = k;
      args.a = &pa;
      args.b = &pb;
      args.a_row = m == 9 ? 1 : 3;  // No stride of a pair is 1, but one extent is.
      args.a_col = 1;
      args.b_row = 3;
      args.b_col = n == 1 ? 77 : k == 1 ? 4 : 1;
      std::vector<float> c(at(m * n)), scratch(1u << 20);
      args.c = c.data();
      args.c_row = n;
      void* aligned =
          reinterpret_cast<void*>((reinterpret_cast<std::uintptr_t>(scratch.data()) + 63) & ~63ull);
      REQUIRE(kernel_table(level).matmul_scratch(args, 4) + 64 <= scratch.size() * 4);
      kernel_table(level).matmul_f32(args, 0, 1, aligned);
      for (std::int64_t i = 0; i < m; ++i) {
        for (std::int64_t j = 0; j < n; ++j) {
          float want = 0;
          for (std::int64_t kk = 0; kk < k; ++kk)
            want += a[at(i * args.a_row + kk * args.a_col)] *
                    b[at(kk * args.b_row + (n == 1 ? 0 : j * args.b_col))];
          CHECK(c[at(i * n + j)] == want);
        }
      }
    }
  }
}

TEST_CASE("matmul is close to Eigen's product in double") {
  std::mt19937 random(15);
  using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  each_layout([&](bool transposed_a, bool transposed_b) {
    Problem<float> problem{130, 90, 200};
    problem.transposed_a = transposed_a;
    problem.transposed_b = transposed_b;
    problem.fill(random);
    Matrix a(problem.m, problem.k), b(problem.k, problem.n);
    for (std::int64_t kk = 0; kk < problem.k; ++kk) {
      for (std::int64_t i = 0; i < problem.m; ++i) a(i, kk) = static_cast<double>(problem.a_at(0, i, kk));
      for (std::int64_t j = 0; j < problem.n; ++j) b(kk, j) = static_cast<double>(problem.b_at(0, kk, j));
    }
    const Matrix want = a * b;
    for (const auto& level : available_levels()) {
      const std::vector<float> got = run(kernel_table(level), problem, 1);
      double worst = 0;
      for (std::int64_t i = 0; i < problem.m; ++i)
        for (std::int64_t j = 0; j < problem.n; ++j)
          worst = std::max(worst, std::abs(want(i, j) - static_cast<double>(problem.c_at(got, i, j))));
      CHECK(worst < 1e-3);
    }
  });
}

}  // namespace
