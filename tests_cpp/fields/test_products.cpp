// Products of matrices over prime fields, by words and by vectors, against remainders of each product.
#include <doctest/doctest.h>

#include <random>
#include <vector>

#include "popsr/fields/products.h"

using namespace popsr::fields;

namespace {

std::vector<Residue> residues(std::size_t count, Residue prime, std::mt19937_64& random, bool largest) {
  std::vector<Residue> out(count);
  for (Residue& each : out) each = largest || random() % 4 == 0 ? prime - 1 : random() % prime;
  return out;
}

}  // namespace

TEST_CASE("products of matrices are exact by words and by vectors") {
  std::mt19937_64 random(1);
  const ProductShape shapes[] = {{1, 32, 128, 40}, {1, 8, 32, 8},   {1, 1, 512, 1}, {1, 3, 700, 17},
                                 {1, 40, 9, 3},    {1, 5, 1000, 9}, {1, 9, 8, 9},   {1, 1, 129, 8},
                                 {1, 13, 256, 6},  {1, 2, 7, 2}};
  for (const Residue prime :
       {Residue{485982858459878327}, Residue{84748684859}, (Residue{1} << kMaxBits) - 93}) {
    const Field field(prime, 0);
    for (const ProductShape& shape : shapes) {
      for (const bool largest : {false, true}) {
        const auto [batch, m, k, n] = shape;
        const std::vector<Residue> a = residues(m * k, prime, random, largest);
        const std::vector<Residue> b = residues(k * n, prime, random, largest);
        std::vector<Residue> expected(m * n), words(m * n), best(m * n);
        for (std::size_t i = 0; i < m; ++i) {
          for (std::size_t j = 0; j < n; ++j) {
            for (std::size_t l = 0; l < k; ++l) {
              const Wide product = static_cast<Wide>(a[i * k + l]) * b[l * n + j];
              expected[i * n + j] = static_cast<Residue>((expected[i * n + j] + product) % prime);
            }
          }
        }
        const auto row = static_cast<std::ptrdiff_t>(k), step = static_cast<std::ptrdiff_t>(n);
        const Lines rows{a.data(), row, 1}, columns{b.data(), 1, step};
        Multiplier(shape, Multiplier::Way::kWords)(field, rows, columns, words.data());
        Multiplier{shape}(field, rows, columns, best.data());
        CHECK(words == expected);
        CHECK(best == expected);
      }
    }
  }
}
