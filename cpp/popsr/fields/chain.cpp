#include "popsr/fields/chain.h"

#include <algorithm>
#include <utility>

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

/// Calls function(field, elements, a, step of a, b, step of b, out) for each line along the last axis.
template <class Function>
void Chain::each_line(std::size_t first, const Walk& walk, const Residue* a, const Residue* b, Written out,
                      const Function& function) const {
  const std::size_t axes = walk.shape.size(), length = axes > 1 ? walk.shape.back() : 1;
  const std::ptrdiff_t a_step = axes > 1 ? walk.a.back() : 0, b_step = axes > 1 ? walk.b.back() : 0;
  std::vector<std::size_t> place(axes);
  for (std::size_t at = 0; at < out.size(); at += length) {
    function(fields_[first + place[0]], length, a, a_step, b, b_step, &out[at]);
    for (std::size_t axis = axes > 1 ? axes - 1 : axes; axis-- > 0;) {
      a += walk.a[axis], b += walk.b[axis];
      if (++place[axis] < walk.shape[axis]) break;
      a -= walk.a[axis] * static_cast<std::ptrdiff_t>(place[axis]);
      b -= walk.b[axis] * static_cast<std::ptrdiff_t>(place[axis]);
      place[axis] = 0;
    }
  }
}

void Chain::add(std::size_t first, const Walk& walk, const Residue* a, const Residue* b, Written out) const {
  each_line(first, walk, a, b, out,
            [](const Field& field, std::size_t size, const Residue* x, std::ptrdiff_t x_step,
               const Residue* y, std::ptrdiff_t y_step, Residue* to) {
              if (x_step == 1 && y_step == 1) {
                for (std::size_t i = 0; i < size; ++i) to[i] = field.add(x[i], y[i]);
                return;
              }
              for (std::size_t i = 0; i < size; ++i, x += x_step, y += y_step) to[i] = field.add(*x, *y);
            });
}

void Chain::sub(std::size_t first, const Walk& walk, const Residue* a, const Residue* b, Written out) const {
  each_line(first, walk, a, b, out,
            [](const Field& field, std::size_t size, const Residue* x, std::ptrdiff_t x_step,
               const Residue* y, std::ptrdiff_t y_step, Residue* to) {
              if (x_step == 1 && y_step == 1) {
                for (std::size_t i = 0; i < size; ++i) to[i] = field.sub(x[i], y[i]);
                return;
              }
              for (std::size_t i = 0; i < size; ++i, x += x_step, y += y_step) to[i] = field.sub(*x, *y);
            });
}

void Chain::mul(std::size_t first, const Walk& walk, const Residue* a, const Residue* b, Written out) const {
  each_line(first, walk, a, b, out,
            [](const Field& field, std::size_t size, const Residue* x, std::ptrdiff_t x_step,
               const Residue* y, std::ptrdiff_t y_step, Residue* to) {
              if (x_step == 0) std::swap(x, y), std::swap(x_step, y_step);
              if (y_step == 0 && size > 1) {
                const Residue factor = field.prepared(*y);
                for (std::size_t i = 0; i < size; ++i, x += x_step) to[i] = field.mul_prepared(*x, factor);
                return;
              }
              for (std::size_t i = 0; i < size; ++i, x += x_step, y += y_step) to[i] = field.mul(*x, *y);
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

void Chain::matmul(std::size_t first, std::size_t rows, const ProductShape& shape, const Matrices& a,
                   const Matrices& b, Written out) const {
  Multiplier multiply(shape);
  Residue* to = out.data();
  for (std::size_t row = 0; row < rows; ++row) {
    for (std::size_t i = 0; i < shape.batch; ++i, to += shape.m * shape.n) {
      const auto matrix = [&](const Matrices& each) {
        return each.at + static_cast<std::ptrdiff_t>(row) * each.field +
               static_cast<std::ptrdiff_t>(i) * each.matrix;
      };
      multiply(fields_[first + row], {matrix(a), a.row, a.column}, {matrix(b), b.column, b.row}, to);
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
