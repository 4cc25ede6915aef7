// Arrays of residues in a chain of prime fields, in which the size of each field divides that of the next
// minus one.
//
// An array has a row for each of its fields: `first` and the ones after it. Arrays are contiguous, except
// for operands that are broadcast.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "popsr/fields/field.h"
#include "popsr/fields/products.h"

namespace popsr::fields {

using Residues = std::span<const Residue>;
using Written = std::span<Residue>;

/// Broadcast of two operands to a result: sizes of its axes, the first of which is the fields, and strides
/// along them in each operand.
struct Walk {
  std::vector<std::size_t> shape;
  std::vector<std::ptrdiff_t> a, b;
};

/// Strides of matrices: from field to field, matrix to matrix, row to row, and along a row.
struct Matrices {
  const Residue* at;
  std::ptrdiff_t field, matrix, row, column;
};

class Chain {
 public:
  /// Makes a chain. `roots`: for each field an element whose order is the prime before; the first is 0.
  Chain(const std::vector<Residue>& primes, const std::vector<Residue>& roots);

  std::size_t size() const { return fields_.size(); }
  const Field& field(std::size_t index) const { return fields_[index]; }

  void add(std::size_t first, const Walk& walk, const Residue* a, const Residue* b, Written out) const;
  void sub(std::size_t first, const Walk& walk, const Residue* a, const Residue* b, Written out) const;
  void mul(std::size_t first, const Walk& walk, const Residue* a, const Residue* b, Written out) const;
  void negate(std::size_t first, std::size_t rows, Residues a, Written out) const;
  /// Inverses; the inverse of 0 is 0.
  void inverse(std::size_t first, std::size_t rows, Residues a, Written out) const;
  /// Powers by exponents that are the same for all rows: `exponents` has one row.
  void power(std::size_t first, std::size_t rows, Residues a, std::span<const std::int64_t> exponents,
             Written out) const;
  /// Powers of roots: row i of field f becomes a row of field f + 1.
  void exp(std::size_t first, std::size_t rows, Residues a, Written out) const;
  /// Pseudorandom function of each residue.
  void random(std::size_t first, std::size_t rows, std::uint64_t key, Parity parity, Residues a,
              Written out) const;
  /// Sums of `length` consecutive elements.
  void sum(std::size_t first, std::size_t rows, std::size_t length, Residues a, Written out) const;
  void matmul(std::size_t first, std::size_t rows, const ProductShape& shape, const Matrices& a,
              const Matrices& b, Written out) const;
  /// Adds rows of `a`, each `width` residues in each field, at their places; places outside are skipped.
  void scatter_add(std::size_t first, std::size_t rows, std::size_t width,
                   std::span<const std::int64_t> places, Residues a, Written out) const;

 private:
  template <class Function>
  void each(std::size_t first, std::size_t rows, std::size_t size, const Function& function) const;
  template <class Function>
  void each_line(std::size_t first, const Walk& walk, const Residue* a, const Residue* b, Written out,
                 const Function& function) const;

  std::vector<Field> fields_;
};

}  // namespace popsr::fields
