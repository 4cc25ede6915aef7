// Views in the IR: what memory they are, against lists of elements.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <set>

#include "popsr/base/error.h"
#include "popsr/effects/memory.h"
#include "support/program.h"

namespace popsr {
namespace {

using test::Program;
using Ints = std::vector<std::int64_t>;
using Element = std::pair<TensorId, std::int64_t>;  // a root and an index

/// Random views, and the element of each of their elements, worked out without the library.
class Chains {
 public:
  explicit Chains(std::uint32_t seed) : program(1), engine_(seed) {
    for (int i = 0; i < 3; ++i) {
      Shape shape(below(3) + 1);
      for (std::int64_t& extent : shape) extent = static_cast<std::int64_t>(below(5)) + 1;
      const TensorId root = program.variable(fmt::format("v{}", i), {}, {DType::kFloat32, shape});
      std::vector<Element>& all = elements[root];
      for (std::int64_t e = 0; e < num_elements(shape); ++e) all.emplace_back(root, e);
      tensors.push_back(root);
    }
  }

  void step() {
    const TensorId from = tensors[below(tensors.size())];
    switch (below(5)) {
      case 0:
      case 1:
        return slice(from);
      case 2:
        return transpose(from);
      case 3:
        return reshape(from);
      default:
        return concat(from);
    }
  }

  Program program;
  std::vector<TensorId> tensors;
  std::map<TensorId, std::vector<Element>> elements;

 private:
  std::size_t below(std::size_t end) { return engine_() % end; }
  const Shape& shape(TensorId t) const { return program.ir.tensor(t).type.shape; }

  void add(TensorId t, std::vector<Element> all) {
    REQUIRE(all.size() == static_cast<std::size_t>(num_elements(shape(t))));
    elements[t] = std::move(all);
    tensors.push_back(t);
  }

  /// Calls visit(coordinates) in C order.
  template <class Visit>
  static void walk(const Shape& shape, const Visit& visit) {
    Ints at(shape.size(), 0);
    for (std::int64_t i = 0; i < num_elements(shape); ++i) {
      std::int64_t rest = i;
      for (std::size_t d = shape.size(); d-- > 0; rest /= shape[d]) at[d] = rest % shape[d];
      visit(at);
    }
  }

  const Element& at(TensorId t, const Ints& coordinates) {
    std::int64_t index = 0;
    for (std::size_t d = 0; d < coordinates.size(); ++d) index = index * shape(t)[d] + coordinates[d];
    return elements[t][static_cast<std::size_t>(index)];
  }

  void slice(TensorId from) {
    Ints start, stop, step, count;
    for (const std::int64_t extent : shape(from)) {
      const auto first = static_cast<std::int64_t>(below(static_cast<std::size_t>(extent)));
      const auto size = static_cast<std::int64_t>(below(static_cast<std::size_t>(extent - first))) + 1;
      const bool down = below(3) == 0;
      const auto every = static_cast<std::int64_t>(below(4) == 0 ? 1 + below(3) : 1);
      count.push_back((size + every - 1) / every);
      step.push_back(down ? -every : every);
      start.push_back(down ? first + size - 1 : first);
      stop.push_back(down ? (first == 0 ? -extent - 1 : first - 1) : first + size);
    }
    const TensorId t = program("slice_", {from}, {}, {{"start", start}, {"stop", stop}, {"step", step}});
    std::vector<Element> all;
    walk(count, [&](Ints where) {
      for (std::size_t d = 0; d < where.size(); ++d) where[d] = start[d] + step[d] * where[d];
      all.push_back(at(from, where));
    });
    add(t, std::move(all));
  }

  void transpose(TensorId from) {
    Ints permutation(shape(from).size());
    for (std::size_t d = 0; d < permutation.size(); ++d) permutation[d] = static_cast<std::int64_t>(d);
    std::ranges::shuffle(permutation, engine_);
    const TensorId t = program("transpose_", {from}, {}, {{"permutation", permutation}});
    std::vector<Element> all;
    walk(shape(t), [&](const Ints& where) {
      Ints source(where.size());
      for (std::size_t d = 0; d < where.size(); ++d) {
        source[static_cast<std::size_t>(permutation[d])] = where[d];
      }
      all.push_back(at(from, source));
    });
    add(t, std::move(all));
  }

  void reshape(TensorId from) {
    Shape to;
    std::int64_t rest = num_elements(shape(from));
    while (rest > 1) {
      std::int64_t extent = 2;
      while (rest % extent != 0 || (extent < rest && below(3) == 0)) ++extent;
      to.push_back(extent);
      rest /= extent;
    }
    const bool flat = below(4) == 0;
    const TensorId t = flat ? program("flatten_", {from}) : program("reshape_", {from}, {}, {{"shape", to}});
    add(t, elements[from]);
  }

  void concat(TensorId from) {
    std::vector<TensorId> operands;
    const std::size_t rank = shape(from).size();
    if (rank == 0) return;
    const std::size_t axis = below(rank);
    for (const TensorId t : tensors) {
      Shape like = shape(from);
      if (shape(t).size() == rank) like[axis] = shape(t)[axis];
      if (shape(t) == like && operands.size() < 3) operands.push_back(t);
    }
    const TensorId t = program("concat_", operands, {}, {{"axis", static_cast<std::int64_t>(axis)}});
    std::vector<Element> all;
    walk(shape(t), [&](Ints where) {
      std::size_t k = 0;
      while (where[axis] >= shape(operands[k])[axis]) where[axis] -= shape(operands[k++])[axis];
      all.push_back(at(operands[k], where));
    });
    add(t, std::move(all));
  }

  std::mt19937 engine_;
};

std::set<Element> elements_of(const Ir& ir, const Region& region) {
  std::set<Element> result;
  const Shape strides = row_major_strides(ir.tensor(region.root).type.shape);
  for (const Box& box : region.part.boxes) {
    std::set<std::int64_t> all{0};
    for (std::size_t d = 0; d < box.size(); ++d) {
      std::set<std::int64_t> next;
      for (const std::int64_t base : all) {
        for (std::int64_t i = 0; i < box[d].count; ++i) {
          next.insert(base + (box[d].start + i * box[d].step) * strides[d]);
        }
      }
      all = std::move(next);
    }
    for (const std::int64_t index : all) result.emplace(region.root, index);
  }
  return result;
}

TEST_CASE("views: regions of random chains hold their elements, and are exact nearly always") {
  int exact = 0, total = 0, repeats = 0;
  for (std::uint32_t seed = 0; seed < 600; ++seed) {
    CAPTURE(seed);
    Chains chains(seed);
    for (int k = 0; k < 12; ++k) chains.step();
    const Ir& ir = chains.program.ir;
    for (const TensorId t : chains.tensors) {
      const std::vector<Element>& expected = chains.elements[t];
      const std::set<Element> different(expected.begin(), expected.end());
      std::set<Element> got;
      bool is_exact = true;
      for (const Region& region : regions_of(ir, t)) {
        const std::set<Element> part = elements_of(ir, region);
        if (region.whole) {
          REQUIRE(static_cast<std::int64_t>(part.size()) == num_elements(ir.tensor(region.root).type.shape));
        }
        got.insert(part.begin(), part.end());
        is_exact &= region.part.exact;
      }
      REQUIRE(std::ranges::includes(got, different));
      if (is_exact) REQUIRE(got == different);
      exact += is_exact ? 1 : 0;
      ++total;
      const View* const view = view_of(ir, t);
      // A view that is traced back to roots repeats if its elements do; else parts of what repeats count,
      // too.
      const bool traced = view && std::ranges::all_of(view->bases, [&ir](TensorId base) {
                            return view_of(ir, base) == nullptr;
                          });
      if (traced && view->repeats) REQUIRE(different.size() < expected.size());
      if (is_exact && different.size() < expected.size()) {
        REQUIRE(view != nullptr);
        REQUIRE(view->repeats);
        ++repeats;
      }
    }
  }
  CHECK(exact * 100 > total * 95);
  CHECK(repeats > 100);
}

TEST_CASE("views: overlap and containment equal the elements'") {
  int apart = 0, inside = 0, missed = 0;
  for (std::uint32_t seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    Chains chains(seed);
    for (int k = 0; k < 8; ++k) chains.step();
    const Ir& ir = chains.program.ir;
    for (const TensorId a : chains.tensors) {
      const std::set<Element> of_a(chains.elements[a].begin(), chains.elements[a].end());
      const std::vector<TensorId> near = aliases(ir, a);
      CHECK(near.front() == a);
      for (const TensorId b : chains.tensors) {
        const std::set<Element> of_b(chains.elements[b].begin(), chains.elements[b].end());
        const bool share = std::ranges::any_of(of_b, [&](const Element& e) { return of_a.contains(e); });
        if (share) REQUIRE(overlaps(ir, a, b));
        if (!overlaps(ir, a, b)) ++apart;
        if (!share && overlaps(ir, a, b)) ++missed;
        CHECK(overlaps(ir, a, b) == overlaps(ir, b, a));
        CHECK(overlaps(ir, a, b) == (std::ranges::find(near, b) != near.end()));
        const bool subset = std::ranges::includes(of_a, of_b);
        if (contains(ir, a, b)) REQUIRE(subset);
        if (contains(ir, a, b)) ++inside;
        if (!contains(ir, a, b) && subset) ++missed;
      }
    }
  }
  CHECK(apart > 5000);
  CHECK(inside > 5000);
  CHECK(missed * 100 < apart);  // hulls
}

TEST_CASE("views: a long chain of slices is one part of its root") {
  Program p(1);
  const TensorId root = p.variable("w", {}, {DType::kFloat32, {4000, 2}});
  TensorId t = root;
  for (int i = 0; i < 2000; ++i) {
    t = p(i % 2 == 0 ? "slice_" : "transpose_", {t}, {},
          i % 2 == 0 ? test::Attrs{{"start", Ints{1}}, {"axis", Ints{i % 4 / 2}}} : test::Attrs{});
  }
  const View& view = *view_of(p.ir, t);
  CHECK(view.bases == std::vector{root});
  REQUIRE(view.regions.size() == 1);
  CHECK(view.regions[0].part.boxes == std::vector<Box>{{make_span(1000, 3000), make_span(0, 2)}});
}

TEST_CASE("views: constants and repeated elements are not written") {
  Program p(1);
  const TensorId v = p.variable("v"), c = p.constant("c");
  const TensorId part = p("slice_", {c}, "part", {{"start", Ints{1}}});
  const TensorId mixed = p("concat_", {v, c}, "mixed"), twice = p("concat_", {v, v}, "twice");
  const TensorId overlapping = p("concat_", {v, p("slice_", {v}, {}, {{"start", Ints{3}}})}, "overlapping");
  for (const TensorId t : {c, part, mixed}) {
    CHECK(test::error_of<GraphError>([&] { p("relu_", {t}); }) ==
          "relu_: input t is modified but constant, got '" + p.ir.tensor(t).name +
              "', expected a variable or an activation");
  }
  for (const TensorId t : {twice, overlapping}) {
    CHECK(test::error_of<GraphError>([&] { p("relu_", {t}); }) ==
          "relu_: input t is modified but it, or what it is a part of, holds an element twice, got '" +
              p.ir.tensor(t).name + "', expected a view of different elements");
  }
  const std::size_t before = p.ir.num_ops();
  p("relu_", {p("concat_", {v, p.variable("w")})});
  CHECK(p.ir.num_ops() == before + 2);
}

TEST_CASE("views: parts of one that holds an element twice are written where they are parts of its bases") {
  Program p(1);
  const TensorId v = p.variable("v");
  const TensorId twice = p("concat_", {v, v}, "twice");
  const test::Attrs middle = {{"start", Ints{2}}, {"stop", Ints{6}}};
  const TensorId part = p("slice_", {twice}, "part", middle);
  CHECK(view_of(p.ir, part)->bases == std::vector{v, v});
  CHECK_FALSE(view_of(p.ir, part)->repeats);
  p("relu_", {part});
  const TensorId rows = p("reshape_", {twice}, "rows", {{"shape", Ints{2, 4}}});
  const TensorId row = p("slice_", {rows}, "row", {{"stop", Ints{1}}});
  CHECK_FALSE(test::error_of<GraphError>([&] { p("relu_", {row}); }).empty());
}

TEST_CASE("views: writing a view in place gives that view again") {
  Program p(1);
  const TensorId v = p.variable("v");
  const TensorId half = p("slice_", {v}, "half", {{"stop", Ints{2}}});
  const TensorId written = p("relu_", {half}, "written");
  CHECK(p.ir.tensor(written).memory.storage == half);
  CHECK(view_of(p.ir, written) == view_of(p.ir, half));
  CHECK(p.ir.tensor(v).memory.viewed == Viewed::kPartly);
  const TensorId inner = p("slice_", {written}, "inner", {{"stop", Ints{1}}});
  CHECK(view_of(p.ir, inner)->bases == std::vector{v});
  CHECK(aliases(p.ir, v) == std::vector{v, half, inner});
}

TEST_CASE("views: empty ones hold nothing") {
  Program p(1);
  const TensorId v = p.variable("v");
  const TensorId none = p("slice_", {v}, "none", {{"start", Ints{2}}, {"stop", Ints{2}}});
  CHECK(regions_of(p.ir, none).empty());
  CHECK_FALSE(overlaps(p.ir, v, none));
  CHECK(contains(p.ir, v, none));
  CHECK(p.ir.tensor(v).memory.viewed == Viewed::kNo);
}

}  // namespace
}  // namespace popsr
