// Every instruction-set level gives the same bits, for every tail length, unaligned starts and in-place
// calls.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "kernels/narrow_stochastically.h"
#include "popsr/kernels/loader.h"

using namespace popsr::kernels;

namespace {

constexpr std::size_t kSizes[kNumComputes] = {4, 8, 1, 2, 4, 8, 1, 2, 4, 8, 1};
using Bytes = std::vector<unsigned char>;

/// `count` elements: random bits, small numbers and special values mixed; bools are 0 or 1.
Bytes elements(int type, std::size_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  Bytes out(count * kSizes[type]);
  const float inf = std::numeric_limits<float>::infinity();
  const float special[] = {0.0F,  -0.0F, 1.0F, -1.0F, inf, -inf, std::numeric_limits<float>::quiet_NaN(),
                           1e-40F};
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t r = random();
    unsigned char* at = out.data() + i * kSizes[type];
    const float small = r % 5 == 0
                            ? special[r >> 8 & 7U]
                            : static_cast<float>(static_cast<int>(r >> 20 & 0xffffU) - 32768) / 4096.0F;
    const double small64 = static_cast<double>(small);
    const std::uint64_t whole = r % 4 == 0 ? r >> 32 & 7U : r;
    if (type == 0 && r % 3 != 0) {
      std::memcpy(at, &small, 4);
    } else if (type == 1 && r % 3 != 0) {
      std::memcpy(at, &small64, 8);
    } else if (type == 10) {
      *at = r & 1U;
    } else {
      std::memcpy(at, &whole, kSizes[type]);
    }
  }
  return out;
}

/// All NaNs become one, so that bytes can be compared.
void unify_nans(Bytes& bytes, int type) {
  const std::size_t size = kSizes[type];
  for (std::size_t at = 0; type < 2 && at < bytes.size(); at += size) {
    float f = 0;
    double d = 0;
    std::memcpy(size == 4 ? static_cast<void*>(&f) : &d, &bytes[at], size);
    if (std::isnan(f) || std::isnan(d)) std::memset(&bytes[at], 0xff, size);
  }
}

/// Runs `call(table, offset, n)` for every tail length and two offsets and compares the outputs of all
/// levels.
template <class Call>
void compare_levels(const char* what, int index, int type, Call call) {
  for (std::int64_t n = 0; n <= 67; ++n) {
    const std::size_t offset = static_cast<std::size_t>(n % 3);
    Bytes expect;
    for (const std::string& level : available_levels()) {
      Bytes got = call(kernel_table(level), offset, n);
      unify_nans(got, type);
      if (expect.empty()) expect = got;
      INFO(what, " ", index, " type ", type, " n ", n, " level ", level);
      REQUIRE(got == expect);
    }
  }
}

}  // namespace

TEST_CASE("the levels implement the same operations") {
  const KernelTable& first = kernel_table(available_levels().front());
  for (const std::string& level : available_levels()) {
    const KernelTable& table = kernel_table(level);
    CHECK(level == table.level);
    for (int c = 0; c < kNumComputes; ++c) {
      for (int op = 0; op < kNumElementwiseOps; ++op) {
        CHECK((table.elementwise(static_cast<ElementwiseOp>(op), static_cast<Compute>(c)) == nullptr) ==
              (first.elementwise(static_cast<ElementwiseOp>(op), static_cast<Compute>(c)) == nullptr));
        const bool missing =
            table.elementwise(static_cast<ElementwiseOp>(op), static_cast<Compute>(c)) == nullptr;
        CHECK(missing == ((row_of(static_cast<ElementwiseOp>(op)).types >> c & 1U) == 0));
      }
      for (int to = 0; to < kNumComputes; ++to) {
        const bool missing = table.cast[c][to] == nullptr;
        CHECK_FALSE(missing);
      }
    }
  }
}

TEST_CASE("elementwise kernels agree, with and without residual, in place too") {
  const double scalars[2] = {0.75, -3.25};
  for (int op = 0; op < kNumElementwiseOps; ++op) {
    for (int c = 0; c < kNumComputes; ++c) {
      if (kernel_table().elementwise(static_cast<ElementwiseOp>(op), static_cast<Compute>(c)) == nullptr)
        continue;
      const Bytes a = elements(c, 80, 1 + static_cast<std::uint64_t>(op));
      const Bytes b = elements(c, 80, 1000);
      const std::size_t size = kSizes[c];
      compare_levels("elementwise", op, c, [&](const KernelTable& table, std::size_t offset, std::int64_t n) {
        Bytes out(81 * size * 2, 0xab);
        unsigned char* lo = out.data() + 81 * size;
        const void* in[3] = {a.data() + offset * size, b.data() + offset * size, a.data()};
        table.elementwise(static_cast<ElementwiseOp>(op), static_cast<Compute>(c))(out.data() + offset * size,
                                                                                   lo, in, n, scalars);
        Bytes in_place = a;
        const void* aliased[3] = {in_place.data() + offset * size, b.data() + offset * size, a.data()};
        table.elementwise(static_cast<ElementwiseOp>(op), static_cast<Compute>(c))(
            in_place.data() + offset * size, nullptr, aliased, n, scalars);
        Bytes part(out.begin() + static_cast<std::ptrdiff_t>(offset * size),
                   out.begin() + static_cast<std::ptrdiff_t>((offset + static_cast<std::size_t>(n)) * size));
        Bytes part_in_place(
            in_place.begin() + static_cast<std::ptrdiff_t>(offset * size),
            in_place.begin() + static_cast<std::ptrdiff_t>((offset + static_cast<std::size_t>(n)) * size));
        unify_nans(part, c);
        unify_nans(part_in_place, c);
        REQUIRE(part == part_in_place);
        return out;
      });
    }
  }
}

/// Number of floats, among `count` from `first` on by their bits, for which `op` differs between the
/// levels.
std::int64_t floats_that_differ(ElementwiseOp op, std::uint64_t first, std::uint64_t count) {
  constexpr std::size_t kTogether = 1U << 14;
  std::vector<std::uint32_t> x(kTogether), dy(kTogether, 0x3f333333U), expected(kTogether), found(kTogether);
  const void* const in[] = {x.data(), dy.data()};
  const std::vector<std::string> names = available_levels();
  std::int64_t different = 0;
  for (std::uint64_t begin = first; begin < first + count; begin += kTogether) {
    for (std::size_t i = 0; i < kTogether; ++i) x[i] = static_cast<std::uint32_t>(begin + i);
    kernel_table(names.front())
        .elementwise(op, Compute::kF32)(expected.data(), nullptr, in, kTogether, nullptr);
    for (std::size_t level = 1; level < names.size(); ++level) {
      kernel_table(names[level])
          .elementwise(op, Compute::kF32)(found.data(), nullptr, in, kTogether, nullptr);
      for (std::size_t i = 0; i < kTogether; ++i) different += expected[i] != found[i] ? 1 : 0;
    }
  }
  return different;
}

// Levels with fused multiply-adds use them in gelu.
TEST_CASE("gelu of floats is the same at all levels") {
  for (const ElementwiseOp op : {ElementwiseOp::kGelu, ElementwiseOp::kGeluGrad}) {
    for (const std::uint64_t sign : {0ULL, 1ULL << 31}) {
      CHECK(floats_that_differ(op, sign + 0x3f000000U, 1U << 20) == 0);  // from 0.5 on
      CHECK(floats_that_differ(op, sign + 0x41000000U, 1U << 18) == 0);  // from 8 on
    }
  }
}

TEST_CASE("gelu slow: of every float, the same at all levels" * doctest::skip()) {
  CHECK(floats_that_differ(ElementwiseOp::kGelu, 0, 1ULL << 32) == 0);
  CHECK(floats_that_differ(ElementwiseOp::kGeluGrad, 0, 1ULL << 32) == 0);
}

TEST_CASE("a result depends on its own operands only") {
  for (int op = 0; op < kNumElementwiseOps; ++op) {
    for (int c = 0; c < 2; ++c) {
      const Bytes a = elements(c, 64, 5);
      const Bytes b = elements(c, 64, 6);
      const double scalars[2] = {0.75, -3.25};
      Bytes whole(a.size());
      Bytes single(a.size());
      const void* in[3] = {a.data(), b.data(), b.data()};
      const auto function =
          kernel_table().elementwise(static_cast<ElementwiseOp>(op), static_cast<Compute>(c));
      if (function == nullptr) continue;
      function(whole.data(), nullptr, in, 64, scalars);
      for (std::size_t i = 0; i < 64; ++i) {
        const void* other = b.data() + i * kSizes[c];
        const void* one[3] = {a.data() + i * kSizes[c], other, other};
        function(single.data() + i * kSizes[c], nullptr, one, 1, scalars);
      }
      unify_nans(whole, c);
      unify_nans(single, c);
      CHECK(whole == single);
    }
  }
}

TEST_CASE("casts agree") {
  for (int from = 0; from < kNumComputes; ++from) {
    const Bytes in = elements(from, 80, 77);
    for (int to = 0; to < kNumComputes; ++to) {
      compare_levels("cast from", from, to,
                     [&](const KernelTable& table, std::size_t offset, std::int64_t n) {
                       Bytes out(80 * kSizes[to]);
                       table.cast[from][to](out.data(), in.data() + offset * kSizes[from], n);
                       return out;
                     });
    }
  }
}

TEST_CASE("reductions agree") {
  for (int op = 0; op < kNumReduces; ++op) {
    for (int c = 0; c < kNumComputes; ++c) {
      if (kernel_table().reduce[op][c] == nullptr) continue;
      for (const std::uint64_t seed : {1U, 2U, 3U}) {
        const Bytes in = elements(c, 80 * 3, seed);
        compare_levels("reduce", op, c, [&](const KernelTable& table, std::size_t offset, std::int64_t n) {
          Bytes out(6 * kSizes[c]);
          table.reduce[op][c](out.data(), out.data() + 3 * kSizes[c], in.data() + offset * kSizes[c], 3, n,
                              75);
          return out;
        });
      }
    }
  }
}

TEST_CASE("softmax agrees") {
  for (int c = 0; c < 2; ++c) {
    std::vector<float> narrow(80);
    std::vector<double> wide(80);
    for (std::size_t i = 0; i < 80; ++i) {
      wide[i] = std::sin(static_cast<double>(i * i)) * 9;
      narrow[i] = static_cast<float>(wide[i]);
    }
    compare_levels("softmax", 0, c, [&](const KernelTable& table, std::size_t offset, std::int64_t n) {
      Bytes out(80 * kSizes[c]);
      if (c == 0) table.softmax_f32->softmax(out.data(), nullptr, narrow.data() + offset, 1, n, nullptr);
      if (c == 1) table.softmax_f64->softmax(out.data(), nullptr, wide.data() + offset, 1, n, nullptr);
      return out;
    });
  }
}

TEST_CASE("narrowing and splitting agree for every tail") {
  const Bytes hi = elements(0, 80, 21);
  Bytes lo(80 * 4, 0);
  const float tiny = 1e-45F;
  std::memcpy(lo.data() + 4 * 7, &tiny, 4);
  const Bytes f64 = elements(1, 80, 22);
  const Bytes i64 = elements(5, 80, 23);
  for (int which = 0; which < 7; ++which) {
    compare_levels("narrow", which, 0, [&](const KernelTable& t, std::size_t offset, std::int64_t n) {
      std::vector<float> out(160);
      const auto* h = reinterpret_cast<const float*>(hi.data()) + offset;
      const auto* l = reinterpret_cast<const float*>(lo.data()) + offset;
      auto* narrow = reinterpret_cast<std::uint16_t*>(out.data()) + offset;
      if (which == 0) t.narrow(popsr::FloatFormat::kBf16, narrow, h, l, n);
      if (which == 1) t.narrow(popsr::FloatFormat::kF16, narrow, h, l, n);
      if (which == 2)
        narrow_stochastically(t, popsr::FloatFormat::kBf16, narrow, h, l, n, {3, 4}, 5 + offset);
      if (which == 3) narrow_stochastically(t, popsr::FloatFormat::kF16, narrow, h, l, n, {3, 4}, 5 + offset);
      if (which == 4) t.split_f64(&out[0], &out[80], reinterpret_cast<const double*>(f64.data()) + offset, n);
      if (which == 5)
        t.split_i64(&out[0], &out[80], reinterpret_cast<const std::int64_t*>(i64.data()) + offset, n);
      if (which == 6)
        t.split_u64(&out[0], &out[80], reinterpret_cast<const std::uint64_t*>(i64.data()) + offset, n);
      Bytes bytes(160 * 4);
      std::memcpy(bytes.data(), out.data(), bytes.size());
      return bytes;
    });
  }
}
