// Values that loops carry are written where the next iteration reads them: the bits of those that are copied.
#include <doctest/doctest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "popsr/runtime/session/session.h"
#include "support/program.h"
#include "support/runs.h"

using namespace popsr;
using popsr::test::Program;

namespace {

const TensorType kTable{DType::kFloat32, {3, 4}}, kIndexType{DType::kInt32, {1}};

/// A loop of three iterations: of an index, a table and two vectors, with a vector from outside.
struct Carried {
  using Body = std::function<std::vector<TensorId>(Program&, const std::vector<TensorId>&)>;

  explicit Carried(const Body& body) : p(4) {
    p.sequence = SequenceMode::kOrdered;
    const std::vector<std::pair<std::string, TensorType>> carried = {
        {"index", kIndexType}, {"table", kTable}, {"a", test::kVector}, {"b", test::kVector}};
    std::vector<TensorId> start;
    for (const auto& [name, type] : carried) {
      const bool is_index = name == "index";
      start.push_back(
          is_index ? p.constant("zero", type)
                   : p.load(name + "0", name == "b" ? StreamMode::kBroadcast : StreamMode::kReplicate, type));
    }
    start.push_back(p.load("x"));
    p.at = p.ir.create_graph("body");
    std::vector<TensorId> inner;
    for (const auto& [name, type] : carried) inner.push_back(p.input(name, type));
    inner.push_back(p.input("outer"));
    for (const TensorId result : body(p, inner)) p.ir.add_output(p.at, result);
    const GraphId graph = std::exchange(p.at, kMainGraph);
    const OpId loop = p.emit("repeat", start, {{"graph", graph}, {"count", std::int64_t{3}}});
    const std::vector<TensorId> ends(p.ir.op(loop).outputs.begin() + 1, p.ir.op(loop).outputs.end());
    for (const TensorId t : ends) {
      const StreamId stream = p.ir.add_stream("out" + std::to_string(t.index()), p.ir.tensor(t).type, false,
                                              StreamMode::kReplicate);
      p.emit("host_store", {t}, {{"d2h_stream", stream}});
    }
  }

  /// Copies that a run makes.
  std::uint64_t copies(const SessionOptions& options) const { return test::calls_of(p, "copy", options); }
  void check_bits() const { test::check_bits(p); }

  Program p;
};

test::Attrs row() {
  return {
      {"axes", std::vector<std::int64_t>{0}}, {"sizes", std::vector<std::int64_t>{1}}, {"no_overlap", true}};
}
TensorId updated(Program& p, TensorId table, TensorId index, TensorId t) {
  const TensorId wide = p("reshape", {t}, {}, {{"shape", std::vector<std::int64_t>{1, 4}}});
  return p("dynamic_update", {table, index, wide}, {}, row());
}
TensorId next(Program& p, TensorId index) {
  const std::vector<std::int32_t> one = {1};
  const auto bytes = std::as_bytes(std::span(one));
  const TensorId step = p.ir.add_constant(
      p.at, "one", kIndexType,
      std::make_shared<const HostBytes>(std::vector<std::byte>(bytes.begin(), bytes.end())));
  return p("add", {index, step});
}

}  // namespace

TEST_CASE("carried values: rows of a table are written in place, states where they are read") {
  const Carried loop([](Program& p, const std::vector<TensorId>& in) {
    const TensorId a = p("tanh", {p("add", {in[2], in[4]})});
    const TensorId b = p("mul", {a, in[4]});
    const TensorId table = updated(p, in[1], in[0], p("add", {a, b}));
    return std::vector{next(p, in[0]), table, a, b};
  });
  loop.check_bits();
  CHECK(loop.copies({.optimise = false}) == 4 + 3 * 4);
  CHECK(loop.copies({}) == 4 + 3);  // Before the loop, and the index, which its sum reads.
}

TEST_CASE("carried values: swapped, repeated and unchanged ones") {
  for (int kind = 0; kind < 4; ++kind) {
    CAPTURE(kind);
    const Carried loop([kind](Program& p, const std::vector<TensorId>& in) {
      const TensorId a = p("add", {in[2], in[4]}), b = p("mul", {in[2], in[3]});
      const TensorId table = updated(p, in[1], in[0], a);
      const std::vector<std::vector<TensorId>> states = {{b, a}, {a, a}, {in[3], in[2]}, {in[3], b}};
      const std::vector<TensorId>& state = states[static_cast<std::size_t>(kind)];
      return std::vector{next(p, in[0]), table, state[0], state[1]};
    });
    loop.check_bits();
  }
}

TEST_CASE("carried values: one that is read after the op that makes the next is kept until then") {
  const Carried loop([](Program& p, const std::vector<TensorId>& in) {
    const TensorId table = updated(p, in[1], in[0], in[4]);
    const TensorId a = p("relu", {in[4]});
    const TensorId before = p("dynamic_slice", {in[1], in[0]}, {}, row());
    const TensorId flat = p("reshape", {before}, {}, {{"shape", std::vector<std::int64_t>{4}}});
    return std::vector{next(p, in[0]), table, a, p("add", {flat, in[2]})};
  });
  loop.check_bits();
}

TEST_CASE("carried values: equal where an iteration makes them so, unlike at the start") {
  const Carried loop([](Program& p, const std::vector<TensorId>& in) {
    const TensorId a = p("tanh", {in[3]}), b = p.all_reduce(in[2], p.groups(1, 4));
    return std::vector{next(p, in[0]), updated(p, in[1], in[0], b), a, b};
  });
  loop.check_bits();
}
