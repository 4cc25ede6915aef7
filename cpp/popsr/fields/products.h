// Products of matrices over a prime field.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "popsr/fields/field.h"

namespace popsr::fields {

/// Sizes of a product of matrices: `batch` times [m, k] x [k, n].
struct ProductShape {
  std::size_t batch = 1, m = 1, k = 1, n = 1;
};

/// Lines of a matrix that are multiplied: strides from line to line, and along a line.
struct Lines {
  const Residue* at;
  std::ptrdiff_t line, step;
};

/// Multiplier for matrices of one shape, [m, k] x [k, n], with buffers that are reused.
///
/// Vectors of eight sums of products of halves are used if the CPU has AVX-512, otherwise 128-bit sums.
/// Results are exact, so they are the same.
class Multiplier {
 public:
  enum class Way : std::uint8_t { kBest, kWords };

  explicit Multiplier(const ProductShape& shape, Way way = Way::kBest);

  /// Multiplies; `a` has rows of the one matrix, `b` columns of the other.
  void operator()(const Field& field, const Lines& a, const Lines& b, Residue* out);

 private:
  void by_words(const Field& field, const Lines& a, const Lines& b, Residue* out);
  void by_vectors(const Field& field, const Lines& a, const Lines& b, Residue* out);

  ProductShape shape_;
  bool turned_;   ///< True if rows and columns are swapped, so that the longer ones are put into vectors.
  bool vectors_;  ///< True if vectors are used.
  std::vector<Residue> rows_, columns_;
};

}  // namespace popsr::fields
