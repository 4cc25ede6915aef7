// Products that read and write through transposes, slices and expansions: the bits of those that do not.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "popsr/runtime/session/session.h"
#include "support/program.h"
#include "support/runs.h"

using namespace popsr;
using popsr::test::Program;

namespace {

Attribute ints(std::vector<std::int64_t> values) { return Attribute(std::move(values)); }

/// A program of float streams, its runs and their bits.
struct Runs {
  explicit Runs(std::int64_t replicas, DType type = DType::kFloat32) : p(replicas), type(type) {
    p.sequence = SequenceMode::kOrdered;
  }

  TensorId load(std::string name, Shape shape) {
    const TensorId wide =
        p.load(std::move(name), StreamMode::kReplicate, {DType::kFloat32, std::move(shape)});
    return type == DType::kFloat32 ? wide : p("cast", {wide}, {}, {{"data_type", type}});
  }

  void store(TensorId t) {
    if (type != DType::kFloat32) t = p("cast", {t}, {}, {{"data_type", DType::kFloat32}});
    const StreamId stream = p.ir.add_stream("out" + std::to_string(t.index()), p.ir.tensor(t).type, false,
                                            StreamMode::kReplicate);
    p.emit("host_store", {t}, {{"d2h_stream", stream}});
  }

  TensorId transpose(TensorId t, std::vector<std::int64_t> permutation) {
    return p("transpose", {t}, {}, {{"permutation", ints(std::move(permutation))}});
  }

  /// Executed ops of that name.
  std::uint64_t calls(const std::string& op, const SessionOptions& options = {}) const {
    return test::calls_of(p, op, options);
  }

  void check_bits(bool stochastic = false) {
    if (stochastic) p.seeds = SeedRules(SeedRule::kPartition);
    test::check_bits(p);
  }

  Program p;
  DType type;
};

/// Attention as models write it: heads of one projection, keys transposed, heads joined.
void attention(Runs& runs) {
  const std::int64_t batch = 2, rows = 5, heads = 3, size = 4;
  const auto split = [&](const std::string& name) {
    const TensorId flat = runs.load(name, {batch, rows, heads * size});
    return runs.p("reshape", {flat}, {}, {{"shape", ints({batch, rows, heads, size})}});
  };
  const TensorId q = runs.transpose(split("q"), {0, 2, 1, 3});
  const TensorId k = runs.transpose(split("k"), {0, 2, 3, 1});
  const TensorId v = runs.transpose(split("v"), {0, 2, 1, 3});
  const TensorId p = runs.p("softmax", {runs.p("matmul", {q, k})}, {}, {{"axis", std::int64_t{3}}});
  const TensorId joined = runs.transpose(runs.p("matmul", {p, v}), {0, 2, 1, 3});
  runs.store(runs.p("reshape", {joined}, {}, {{"shape", ints({batch, rows, heads * size})}}));
}

}  // namespace

TEST_CASE("reads through views: attention has no transposes, in each type, with and without noise") {
  for (const DType type : {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kFloat64}) {
    for (const bool stochastic : {false, true}) {
      CAPTURE(type);
      if (stochastic && (type == DType::kFloat32 || type == DType::kFloat64)) continue;
      Runs runs(4, type);
      attention(runs);
      CHECK(runs.calls("transpose", {.optimise = false}) == 4);
      CHECK(runs.calls("transpose") == 0);
      runs.check_bits(stochastic);
    }
  }
}

TEST_CASE("reads through views: a copy that others read is still made") {
  Runs runs(2);
  const TensorId x = runs.load("x", {5, 7}), y = runs.load("y", {5, 3});
  const TensorId t = runs.transpose(x, {1, 0});
  runs.store(runs.p("matmul", {t, y}));
  runs.store(t);
  CHECK(runs.calls("transpose") == 1);
  runs.check_bits();
}

TEST_CASE("reads through views: what is written between the copy and the product is not read") {
  Runs runs(2);
  const TensorId x = runs.p.variable("x", {}, {DType::kFloat32, {5, 7}});
  const TensorId y = runs.load("y", {5, 3}), z = runs.load("z", {5, 7});
  const TensorId t = runs.transpose(x, {1, 0});
  runs.p("copy_var_update_", {x, z});
  runs.store(runs.p("matmul", {t, y}));
  CHECK(runs.calls("transpose") == 1);
  runs.check_bits();
}

TEST_CASE("reads through views: a product whose copy is written where it is read stays as it is") {
  Runs runs(2);
  const TensorId x = runs.p.variable("x", {}, {DType::kFloat32, {5, 5}});
  const TensorId y = runs.load("y", {5, 5});
  const TensorId t = runs.transpose(runs.p("matmul", {runs.transpose(x, {1, 0}), y}), {1, 0});
  runs.p("copy_var_update_", {x, t});
  runs.store(x);
  runs.check_bits();
}

TEST_CASE("reads through views: slices, expansions and views of views") {
  Runs runs(2);
  const TensorId x = runs.load("x", {6, 8}), y = runs.load("y", {1, 4});
  const auto slice = [&](TensorId t, std::vector<std::int64_t> start, std::vector<std::int64_t> stop,
                         std::vector<std::int64_t> step, std::vector<std::int64_t> axis) {
    return runs.p("slice", {t}, {},
                  {{"start", ints(std::move(start))},
                   {"stop", ints(std::move(stop))},
                   {"step", ints(std::move(step))},
                   {"axis", ints(std::move(axis))}});
  };
  const TensorId part = slice(x, {1, 2}, {5, 6}, {1, 1}, {0, 1});
  const TensorId every_other = slice(x, {0, 1}, {6, 8}, {2, 2}, {0, 1});
  const TensorId wide = runs.p("expand", {y}, {}, {{"shape", ints({3, 4})}});
  runs.store(runs.p("matmul", {part, runs.transpose(every_other, {1, 0})}));
  runs.store(runs.p("matmul", {wide, part}));
  runs.store(runs.p("matmul", {runs.transpose(part, {1, 0}), part}));
  runs.check_bits();
}

TEST_CASE("reads through views: in loops, each pass reads what it was given") {
  Runs runs(2);
  const TensorId w = runs.p.variable("w", {}, {DType::kFloat32, {4, 4}});
  const TensorId x = runs.load("x", {4, 4});
  const TensorId t = runs.transpose(w, {1, 0});
  for (int i = 0; i < 3; ++i) {
    const TensorId y = runs.transpose(runs.p("matmul", {t, runs.transpose(x, {1, 0})}), {1, 0});
    runs.p("add_", {w, y});
  }
  runs.store(w);
  runs.check_bits();
}
