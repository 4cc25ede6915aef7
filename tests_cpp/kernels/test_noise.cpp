// The noise: known answers, the layout, and equality of the software and hardware rounds.
#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

#include "popsr/kernels/loader.h"
#include "popsr/kernels/noise.h"

using namespace popsr::kernels;

namespace {

struct KnownAnswer {
  std::uint64_t counter_lo, counter_hi;
  NoiseKey key;
  NoiseKey expect;
};

// From the ars4x32_R(7, ...) of Random123 1.14. The first three are the inputs of its own kat_vectors.
const KnownAnswer kKnownAnswers[] = {
    {0x0000000000000000ULL,
     0x0000000000000000ULL,
     {0x0000000000000000ULL, 0x0000000000000000ULL},
     {0xc45798f3dacf61ffULL, 0x101e27f3113c7eebULL}},
    {0xffffffffffffffffULL,
     0xffffffffffffffffULL,
     {0xffffffffffffffffULL, 0xffffffffffffffffULL},
     {0xbb547ef9fbaaff1fULL, 0x7aaa969b13d8cd78ULL}},
    {0x13198a2e03707344ULL,
     0x243f6a8885a308d3ULL,
     {0x082efa98ec4e6c89ULL, 0xa4093822299f31d0ULL},
     {0xe24a6f64e6fee4c9ULL, 0x789166f13f1ca3a5ULL}},
    {0x0000000000000005ULL,
     0x0000000000000002ULL,
     {0x0123456789abcdefULL, 0xfedcba9876543210ULL},
     {0x10c88e309a809decULL, 0xd3198a32340c85b4ULL}},
};

std::uint64_t word_of(const NoiseKey& block, std::uint64_t lane) {
  return ((lane < 4 ? block.lo : block.hi) >> (16 * (lane % 4))) & 0xffffU;
}

}  // namespace

TEST_CASE("ars7 gives Random123's known answers at every level") {
  for (const std::string& level : available_levels()) {
    CAPTURE(level);
    for (const KnownAnswer& known : kKnownAnswers) {
      const NoiseKey got = kernel_table(level).ars7(known.counter_lo, known.counter_hi, known.key);
      CHECK(got.lo == known.expect.lo);
      CHECK(got.hi == known.expect.hi);
    }
  }
}

TEST_CASE("software and hardware rounds agree on random inputs") {
  const KernelTable& reference = kernel_table(available_levels().front());
  NoiseKey key = {1, 2};
  for (std::uint64_t i = 0; i < 2000; ++i) {
    const NoiseKey expect = reference.ars7(key.hi ^ i, key.lo, key);
    for (const std::string& level : available_levels()) {
      const NoiseKey got = kernel_table(level).ars7(key.hi ^ i, key.lo, key);
      REQUIRE(got.lo == expect.lo);
      REQUIRE(got.hi == expect.hi);
    }
    key = expect;
  }
}

TEST_CASE("uniform_bits follows the word layout for any start and length") {
  const NoiseKey key = {0x0123456789abcdefULL, 42};
  for (const std::string& level : available_levels()) {
    const KernelTable& table = kernel_table(level);
    const std::uint64_t near_wrap = ~std::uint64_t{0} - 40;
    for (const std::uint64_t first :
         {std::uint64_t{0}, std::uint64_t{5}, std::uint64_t{1} << 40, near_wrap}) {
      for (const std::int64_t n : {0, 1, 7, 8, 9, 31, 300, 700}) {
        if (first == near_wrap && n > 40) continue;
        std::vector<std::uint64_t> got(static_cast<std::size_t>(n) + 1, 77);
        table.uniform_bits(got.data(), n, key, first);
        CHECK(got.back() == 77);
        for (std::int64_t i = 0; i < n; ++i) {
          const std::uint64_t element = first + static_cast<std::uint64_t>(i);
          std::uint64_t expect = 0;
          for (std::uint64_t d = 0; d < 4; ++d) {
            expect = expect << 16 | word_of(table.ars7(element / 8, d, key), element % 8);
          }
          REQUIRE(got[static_cast<std::size_t>(i)] == expect);
        }
      }
    }
  }
}

TEST_CASE("keep_mask compares all 64 bits, for any start, length and threshold") {
  const NoiseKey key = {0x0123456789abcdefULL, 42};
  for (const std::string& level : available_levels()) {
    CAPTURE(level);
    const KernelTable& table = kernel_table(level);
    for (const std::uint64_t first : {std::uint64_t{0}, std::uint64_t{5}, std::uint64_t{1} << 40}) {
      for (const std::int64_t n : {0, 1, 7, 9, 700, 2500}) {
        std::vector<std::uint64_t> bits(static_cast<std::size_t>(n) + 1);
        table.uniform_bits(bits.data(), n, key, first);
        // Bits of elements themselves, so that the first words tie and the others decide.
        const std::uint64_t middle = bits[static_cast<std::size_t>(n) / 2];
        const std::uint64_t cut = middle & ~std::uint64_t{0xffffffffffff};
        for (const std::uint64_t threshold : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{1} << 63,
                                              ~std::uint64_t{0}, middle, middle + 1, middle - 1, cut}) {
          std::vector<std::uint8_t> got(static_cast<std::size_t>(n) + 1, 77);
          table.keep_mask(got.data(), n, key, first, threshold);
          CHECK(got.back() == 77);
          for (std::size_t i = 0; i < static_cast<std::size_t>(n); ++i) {
            REQUIRE(int{got[i]} == (bits[i] >= threshold ? 1 : 0));
          }
        }
      }
    }
  }
}

TEST_CASE("derived keys separate domains and components") {
  const KernelTable& table = kernel_table();
  const NoiseKey root = seed_key(table, 7);
  const NoiseKey expect = table.ars7(7, 0x101, {0x243F6A8885A308D3ULL, 0x13198A2E03707344ULL});
  CHECK(root.lo == expect.lo);
  CHECK(root.hi == expect.hi);
  CHECK(derive_key(table, root, Domain::kOp, 3).lo != derive_key(table, root, Domain::kCall, 3).lo);
  const NoiseKey op_of_call = derive_key(table, derive_key(table, root, Domain::kCall, 5), Domain::kOp, 3);
  const NoiseKey call_of_op = derive_key(table, derive_key(table, root, Domain::kCall, 3), Domain::kOp, 5);
  CHECK(op_of_call.lo != call_of_op.lo);
}
