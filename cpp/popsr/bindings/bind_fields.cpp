// popsr._core.fields: arithmetic of residues in a chain of prime fields, on contiguous arrays whose first
// axis is the fields. Operands of sums and products are broadcast. Here are the checks that memory needs.
#include <algorithm>
#include <span>
#include <vector>

#include "popsr/base/error.h"
#include "popsr/bindings/bindings.h"
#include "popsr/bindings/gil.h"
#include "popsr/fields/chain.h"

namespace popsr::bindings {
namespace {

using namespace py::literals;
using fields::Chain;
using fields::Residue;
using fields::Residues;
using fields::Walk;
using fields::Written;
using Array = py::array_t<Residue, py::array::c_style | py::array::forcecast>;
using Strided = py::array_t<Residue, py::array::forcecast>;
using Integers = py::array_t<std::int64_t, py::array::c_style | py::array::forcecast>;

Residues values(const Array& a) { return {a.data(), static_cast<std::size_t>(a.size())}; }
std::span<const std::int64_t> values(const Integers& a) {
  return {a.data(), static_cast<std::size_t>(a.size())};
}

std::vector<py::ssize_t> shape_of(const Array& a) { return {a.shape(), a.shape() + a.ndim()}; }

/// Rows of an array, which are fields of the chain from `first` on.
std::size_t rows_of(const Chain& chain, std::size_t first, const Array& a) {
  POPSR_CHECK(a.ndim() > 0 && first + static_cast<std::size_t>(a.shape(0)) <= chain.size());
  return static_cast<std::size_t>(a.shape(0));
}

/// Fills a new array without the GIL.
template <class Fill>
Array filled(const std::vector<py::ssize_t>& shape, const Fill& fill) {
  Array out(shape);
  const Written data(out.mutable_data(), static_cast<std::size_t>(out.size()));
  const WithoutGil released;
  fill(data);
  return out;
}

using Unary = void (Chain::*)(std::size_t, std::size_t, Residues, Written) const;
using Binary = void (Chain::*)(std::size_t, const Walk&, const Residue*, const Residue*, Written) const;

auto unary(Unary function) {
  return [function](const Chain& chain, std::size_t first, const Array& a) {
    const std::size_t rows = rows_of(chain, first, a);
    return filled(shape_of(a), [&](Written out) { (chain.*function)(first, rows, values(a), out); });
  };
}

/// Axes of a result, the first of which is the fields, along which operands are broadcast.
Walk walk_of(const Strided& a, const Strided& b) {
  const py::ssize_t axes = std::max(a.ndim(), b.ndim());
  Walk walk{std::vector<std::size_t>(static_cast<std::size_t>(axes), 1), {}, {}};
  const auto place = [axes](const Strided& each, py::ssize_t axis) {  // Negative: the operand lacks the axis.
    return axis == 0 ? 0 : axis - axes + each.ndim() < 1 ? -1 : axis - axes + each.ndim();
  };
  for (py::ssize_t axis = 0; axis < axes; ++axis) {
    auto& size = walk.shape[static_cast<std::size_t>(axis)];
    for (const Strided* each : {&a, &b}) {
      const py::ssize_t own = place(*each, axis);
      if (own < 0 || each->shape(own) == 1) continue;
      POPSR_CHECK(size == 1 || size == static_cast<std::size_t>(each->shape(own)));
      size = static_cast<std::size_t>(each->shape(own));
    }
  }
  for (py::ssize_t axis = 0; axis < axes; ++axis) {
    const auto step = [&](const Strided& each) {
      const py::ssize_t own = place(each, axis);
      return own < 0 || each.shape(own) == 1 ? 0 : each.strides(own) / each.itemsize();
    };
    walk.a.push_back(step(a));
    walk.b.push_back(step(b));
  }
  return walk;
}

auto binary(Binary function) {
  return [function](const Chain& chain, std::size_t first, const Strided& a, const Strided& b) {
    POPSR_CHECK(a.ndim() > 0 && b.ndim() > 0 && a.shape(0) == b.shape(0));
    POPSR_CHECK(first + static_cast<std::size_t>(a.shape(0)) <= chain.size());
    const Walk walk = walk_of(a, b);
    return filled({walk.shape.begin(), walk.shape.end()},
                  [&](Written out) { (chain.*function)(first, walk, a.data(), b.data(), out); });
  };
}

Array power(const Chain& chain, std::size_t first, const Array& a, const Integers& exponents) {
  const std::size_t rows = rows_of(chain, first, a);
  POPSR_CHECK(static_cast<std::size_t>(exponents.size()) * rows == static_cast<std::size_t>(a.size()));
  return filled(shape_of(a),
                [&](Written out) { chain.power(first, rows, values(a), values(exponents), out); });
}

Array exp(const Chain& chain, std::size_t first, const Array& a) {
  const std::size_t rows = rows_of(chain, first + 1, a);
  return filled(shape_of(a), [&](Written out) { chain.exp(first, rows, values(a), out); });
}

/// `parity`: 0 for none, 1 for an even function, 2 for an odd one.
Array random(const Chain& chain, std::size_t first, std::uint64_t key, int parity, const Array& a) {
  const std::size_t rows = rows_of(chain, first, a);
  POPSR_CHECK(parity >= 0 && parity <= static_cast<int>(fields::Parity::kOdd));
  const auto symmetry = static_cast<fields::Parity>(parity);
  return filled(shape_of(a), [&](Written out) { chain.random(first, rows, key, symmetry, values(a), out); });
}

Array sum(const Chain& chain, std::size_t first, const Array& a) {
  const std::size_t rows = rows_of(chain, first, a);
  POPSR_CHECK(a.ndim() > 1);
  std::vector<py::ssize_t> shape = shape_of(a);
  const auto length = static_cast<std::size_t>(shape.back());
  shape.pop_back();
  return filled(shape, [&](Written out) { chain.sum(first, rows, length, values(a), out); });
}

fields::Matrices matrices(const Strided& a) {
  const auto step = [&](py::ssize_t axis) { return a.strides(axis) / a.itemsize(); };
  return {a.data(), step(0), step(1), step(2), step(3)};
}

/// [rows, batch, m, k] x [rows, batch, k, n].
Array matmul(const Chain& chain, std::size_t first, const Strided& a, const Strided& b) {
  POPSR_CHECK(a.ndim() == 4 && b.ndim() == 4 && a.shape(0) == b.shape(0) && a.shape(1) == b.shape(1) &&
              a.shape(3) == b.shape(2));
  const auto extent = [](py::ssize_t n) { return static_cast<std::size_t>(n); };
  POPSR_CHECK(first + extent(a.shape(0)) <= chain.size());
  const fields::ProductShape shape{extent(a.shape(1)), extent(a.shape(2)), extent(a.shape(3)),
                                   extent(b.shape(3))};
  return filled({a.shape(0), a.shape(1), a.shape(2), b.shape(3)}, [&](Written out) {
    chain.matmul(first, extent(a.shape(0)), shape, matrices(a), matrices(b), out);
  });
}

/// [rows, number of places, width] added to a copy of [rows, targets, width].
Array scatter_add(const Chain& chain, std::size_t first, const Array& to, const Integers& places,
                  const Array& a) {
  const std::size_t rows = rows_of(chain, first, to);
  POPSR_CHECK(to.ndim() == 3 && a.ndim() == 3 && to.shape(0) == a.shape(0) && to.shape(2) == a.shape(2) &&
              a.shape(1) == places.size());
  const auto width = static_cast<std::size_t>(a.shape(2));
  return filled(shape_of(to), [&](Written out) {
    std::copy_n(to.data(), to.size(), out.data());
    chain.scatter_add(first, rows, width, values(places), values(a), out);
  });
}

/// Keys of residues of one field, without a row for it.
py::array_t<double> order_keys(const Chain& chain, std::size_t field, std::uint64_t key, const Array& a) {
  POPSR_CHECK(field < chain.size());
  py::array_t<double> out(shape_of(a));
  double* const data = out.mutable_data();
  const Residues given = values(a);
  const WithoutGil released;
  for (std::size_t i = 0; i < given.size(); ++i) {
    data[i] = fields::order_key(chain.field(field), key, given[i]);
  }
  return out;
}

/// Numerators and denominators of residues of one field; 0 / 0 where a residue is none of a small fraction.
py::array_t<std::int64_t> small_fractions(const Chain& chain, std::size_t field, const Array& a) {
  POPSR_CHECK(field < chain.size());
  std::vector<py::ssize_t> shape = shape_of(a);
  shape.insert(shape.begin(), 2);
  py::array_t<std::int64_t> out(shape);
  std::int64_t* const data = out.mutable_data();
  const Residues given = values(a);
  const WithoutGil released;
  for (std::size_t i = 0; i < given.size(); ++i) {
    const fields::Small small = fields::small_fraction(chain.field(field), given[i]);
    data[i] = small.numerator;
    data[given.size() + i] = small.denominator;
  }
  return out;
}

}  // namespace

void bind_fields(py::module_& m) {
  py::module_ sub = m.def_submodule("fields", "Arithmetic of residues in a chain of prime fields (private)");
  py::class_<Chain>(sub, "Chain")
      .def(py::init<const std::vector<Residue>&, const std::vector<Residue>&>(), "primes"_a, "roots"_a)
      .def("add", binary(&Chain::add), "first"_a, "a"_a, "b"_a)
      .def("sub", binary(&Chain::sub), "first"_a, "a"_a, "b"_a)
      .def("mul", binary(&Chain::mul), "first"_a, "a"_a, "b"_a)
      .def("negate", unary(&Chain::negate), "first"_a, "a"_a)
      .def("inverse", unary(&Chain::inverse), "first"_a, "a"_a)
      .def("power", &power, "first"_a, "a"_a, "exponents"_a)
      .def("exp", &exp, "first"_a, "a"_a)
      .def("random", &random, "first"_a, "key"_a, "parity"_a, "a"_a)
      .def("sum", &sum, "first"_a, "a"_a)
      .def("matmul", &matmul, "first"_a, "a"_a, "b"_a)
      .def("scatter_add", &scatter_add, "first"_a, "to"_a, "places"_a, "a"_a)
      .def("order_keys", &order_keys, "field"_a, "key"_a, "a"_a)
      .def("small_fractions", &small_fractions, "field"_a, "a"_a);
}

}  // namespace popsr::bindings
