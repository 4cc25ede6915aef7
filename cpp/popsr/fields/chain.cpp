#include "popsr/fields/chain.h"

#include <algorithm>

namespace popsr::fields {

Chain::Chain(const std::vector<Residue>& primes, const std::vector<Residue>& roots) {
  for (std::size_t i = 0; i < primes.size(); ++i) fields_.emplace_back(primes[i], roots[i]);
}

/// Calls function(field, first element, end of the elements) for each row of `size` residues.
template <class Function>
void Chain::each(std::size_t first, std::size_t rows, std::size_t size, const Function& function) const {
  const std::size_t width = rows == 0 ? 0 : size / rows;
  for (std::size_t row = 0; row < rows; ++row) function(fields_[first + row], row * width, (row + 1) * width);
}

void Chain::add(std::size_t first, std::size_t rows, Residues a, Residues b, Written out) const {
  each(first, rows, out.size(), [&](const Field& field, std::size_t from, std::size_t to) {
    for (std::size_t i = from; i < to; ++i) out[i] = field.add(a[i], b[i]);
  });
}

void Chain::sub(std::size_t first, std::size_t rows, Residues a, Residues b, Written out) const {
  each(first, rows, out.size(), [&](const Field& field, std::size_t from, std::size_t to) {
    for (std::size_t i = from; i < to; ++i) out[i] = field.sub(a[i], b[i]);
  });
}

void Chain::mul(std::size_t first, std::size_t rows, Residues a, Residues b, Written out) const {
  each(first, rows, out.size(), [&](const Field& field, std::size_t from, std::size_t to) {
    for (std::size_t i = from; i < to; ++i) out[i] = field.mul(a[i], b[i]);
  });
}

void Chain::negate(std::size_t first, std::size_t rows, Residues a, Written out) const {
  each(first, rows, out.size(), [&](const Field& field, std::size_t from, std::size_t to) {
    for (std::size_t i = from; i < to; ++i) out[i] = field.negate(a[i]);
  });
}

void Chain::inverse(std::size_t first, std::size_t rows, Residues a, Written out) const {
  each(first, rows, out.size(), [&](const Field& field, std::size_t from, std::size_t to) {
    Residue product = 1;  // One inverse for all: of the product, from which the others are taken off.
    for (std::size_t i = from; i < to; ++i) {
      out[i] = product;
      if (a[i] != 0) product = field.mul(product, a[i]);
    }
    Residue rest = field.inverse(product);
    for (std::size_t i = to; i-- > from;) {
      const Residue value = a[i];  // `out` may be `a`'s neighbour, never `a`.
      out[i] = value == 0 ? 0 : field.mul(rest, out[i]);
      if (value != 0) rest = field.mul(rest, value);
    }
  });
}

void Chain::power(std::size_t first, std::size_t rows, Residues a, std::span<const std::int64_t> exponents,
                  Written out) const {
  each(first, rows, out.size(), [&](const Field& field, std::size_t from, std::size_t to) {
    for (std::size_t i = from; i < to; ++i) {
      const std::int64_t exponent = exponents[i - from];
      const Residue base = exponent < 0 ? field.inverse(a[i]) : a[i];
      out[i] = field.power(base, static_cast<std::uint64_t>(exponent < 0 ? -exponent : exponent));
    }
  });
}

void Chain::exp(std::size_t first, std::size_t rows, Residues a, Written out) const {
  each(first + 1, rows, out.size(), [&](const Field& field, std::size_t from, std::size_t to) {
    for (std::size_t i = from; i < to; ++i) out[i] = field.power_of_root(a[i]);
  });
}

void Chain::random(std::size_t first, std::size_t rows, std::uint64_t key, Parity parity, Residues a,
                   Written out) const {
  each(first, rows, out.size(), [&](const Field& field, std::size_t from, std::size_t to) {
    const std::uint64_t own = mix(key, field.prime());
    for (std::size_t i = from; i < to; ++i) out[i] = field.random(own, parity, a[i]);
  });
}

void Chain::sum(std::size_t first, std::size_t rows, std::size_t length, Residues a, Written out) const {
  each(first, rows, out.size(), [&](const Field& field, std::size_t from, std::size_t to) {
    for (std::size_t i = from; i < to; ++i) {
      Wide sum = 0;
      for (const Residue each : a.subspan(i * length, length)) sum += each;
      out[i] = static_cast<Residue>(sum % field.prime());
    }
  });
}

void Chain::matmul(std::size_t first, std::size_t rows, const ProductShape& shape, Residues a, Residues b,
                   Written out) const {
  const auto [batch, m, k, n] = shape;
  std::vector<Residue> columns(n * k);
  std::size_t place = 0;
  for (std::size_t row = 0; row < rows; ++row) {
    const Field& field = fields_[first + row];
    for (std::size_t each = row * batch; each < (row + 1) * batch; ++each) {
      const Residues left = a.subspan(each * m * k, m * k), right = b.subspan(each * k * n, k * n);
      for (std::size_t i = 0; i < k; ++i) {
        for (std::size_t j = 0; j < n; ++j) columns[j * k + i] = right[i * n + j];
      }
      for (std::size_t i = 0; i < m; ++i) {
        for (std::size_t j = 0; j < n; ++j) {
          Wide sum = 0;
          for (std::size_t l = 0; l < k; ++l) field.add_product(sum, left[i * k + l], columns[j * k + l]);
          out[place++] = field.restore(field.reduce(sum));
        }
      }
    }
  }
}

void Chain::scatter_add(std::size_t first, std::size_t rows, std::size_t width,
                        std::span<const std::int64_t> places, Residues a, Written out) const {
  const std::size_t from_row = places.size() * width;
  std::size_t row = 0;
  each(first, rows, out.size(), [&](const Field& field, std::size_t from, std::size_t to) {
    const Residues values = a.subspan(from_row * row++, from_row);
    const auto targets = static_cast<std::int64_t>((to - from) / std::max<std::size_t>(width, 1));
    for (std::size_t i = 0; i < places.size(); ++i) {
      if (places[i] < 0 || places[i] >= targets) continue;
      Residue* const target = &out[from + static_cast<std::size_t>(places[i]) * width];
      for (std::size_t j = 0; j < width; ++j) target[j] = field.add(target[j], values[i * width + j]);
    }
  });
}

}  // namespace popsr::fields
