// Facts of memory that views share: what is lost, what is kept, and when.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <random>
#include <vector>

#include "analysis/names.h"
#include "popsr/analysis/memory/memory_facts.h"
#include "popsr/analysis/partition_analysis.h"
#include "popsr/analysis/popart/popart_analysis.h"
#include "popsr/base/error.h"
#include "popsr/effects/verify.h"
#include "popsr/transform/graph_editor.h"
#include "popsr/transform/merge.h"
#include "support/program.h"

namespace popsr {
namespace {

using test::error_of;
using test::Expect;
using test::facts_of;
using test::kAll;
using test::kEach;
using test::kEqual;
using test::kHalf;
using test::kPairs;
using test::Program;
using Ints = std::vector<std::int64_t>;

struct Views : Program {
  Views() : Program(4) { sequence = SequenceMode::kOrdered; }

  TensorId half(TensorId t, std::int64_t index, std::string name) {
    return (*this)("slice_", {t}, std::move(name),
                   {{"start", Ints{2 * index}}, {"stop", Ints{2 * index + 2}}});
  }
  void check(const Expect& expected) {
    verify(ir);
    const PartitionAnalysis facts(ir);
    CHECK(facts_of(ir, facts, expected) == expected);
  }
  /// Facts of all values of a tensor of the main graph.
  std::vector<std::string> values(TensorId t) {
    const PartitionAnalysis facts(ir);
    std::vector<std::string> result;
    for (const auto& [time, fact] : facts.values(t, facts.contexts(kMainGraph).front())) {
      result.push_back(fmt::format("{}:{}", time, ir.partitions().to_string(fact)));
    }
    return result;
  }
};

TEST_CASE("view facts: a view of an equal and an unequal tensor leaves the equal one equal (P1)") {
  Views p;
  const TensorId weight = p.variable("w"), activation = p.load("x");
  const TensorId both = p("concat_", {weight, activation}, "both");
  p("relu", {both}, "y");
  p.check({{"w", kAll}, {"x", kEach}, {"both", kEach}, {"y", kEach}});
}

TEST_CASE("view facts: two equal tensors side by side are equal") {
  Views p;
  p("concat_", {p.variable("w"), p.load("x", kEqual)}, "both");
  p.check({{"both", kAll}});
}

TEST_CASE("view facts: overwriting a view fully forgets what was there (P3)") {
  Views p;
  const TensorId x = p.load("x");
  const TensorId rows = p("reshape_", {x}, "rows", {{"shape", Ints{2, 2}}});
  p("copy_var_update_", {rows, p.load("y", kEqual, {DType::kFloat32, {2, 2}})}, "z");
  p.check({{"x", kAll}, {"rows", kAll}, {"z", kAll}});
}

TEST_CASE("view facts: reducing both halves in place makes the whole equal (P4)") {
  Views p;
  const TensorId x = p.load("x");
  for (int i = 0; i < 2; ++i) {
    p("replicated_all_reduce_", {p.half(x, i, fmt::format("half{}", i))}, {}, {{"op", std::string("add")}});
  }
  p.check({{"x", kAll}, {"half0", kAll}, {"half1", kAll}});
  CHECK(p.values(x) == std::vector<std::string>{"0:" + kEach, "2:" + kEach, "4:" + kAll});
}

TEST_CASE("view facts: reducing one half, within groups, keeps both facts") {
  Views p;
  const TensorId x = p.load("x");
  const TensorId first = p.half(x, 0, "first");
  p.half(x, 1, "second");
  p("replicated_all_reduce_", {first}, "reduced", {{"op", std::string("add")}, {"group", p.groups(1, 2)}});
  p.check({{"x", kEach}, {"first", kPairs}, {"second", kEach}, {"reduced", kPairs}});
}

/// Two halves of an equal buffer are loaded, one with equal data.
void load_halves(Views& p, bool merged) {
  const TensorId x = p("init", {}, "x", {{"shape", Shape{4}}, {"dtype", DType::kFloat32}});
  const TensorId first = p.half(x, 0, "first"), second = p.half(x, 1, "second");
  const RemoteId equal = p.ir.add_remote_buffer(kHalf, 1), other = p.ir.add_remote_buffer(kHalf, 1);
  const auto entry = [](RemoteId id) {
    return test::Attrs{{"remote_buffer", id}, {"entry", std::int64_t{0}}};
  };
  p.emit("remote_store", {p.load("a", kEqual, kHalf)}, entry(equal));
  p.emit("remote_store", {p.load("b", StreamMode::kReplicate, kHalf)}, entry(other));
  p("remote_load_", {first}, "loaded", entry(equal));
  p("remote_load_", {second}, "others", entry(other));
  if (merged) CHECK(merge_exchange(p.ir) > 0);
}

TEST_CASE("view facts: halves loaded with equal and unequal data (U7)") {
  for (const bool merged : {false, true}) {
    CAPTURE(merged);
    Views p;
    load_halves(p, merged);
    p.check({{"x", kEach}, {"first", kAll}, {"second", kEach}, {"loaded", kAll}, {"others", kEach}});
  }
}

/// Two halves of an equal tensor are modified by one call, one to equal data.
void modify_halves(Views& p) {
  const GraphId graph = p.ir.create_graph("f");
  p.at = graph;
  const TensorId a = p.input("a", kHalf), b = p.input("b", kHalf), from = p.input("from", kHalf);
  p("copy_var_update_", {a, from});
  p("copy_var_update_", {b, p.load("u", StreamMode::kReplicate, kHalf)});
  p.at = kMainGraph;
  const TensorId x = p.load("x", kEqual);
  const TensorId first = p.half(x, 0, "first"), second = p.half(x, 1, "second");
  const OpId call = p.emit("call", {first, second, p.load("y", kEqual, kHalf)}, {{"graph", graph}});
  GraphEditor(p.ir).mark_modified(call, 0);
  GraphEditor(p.ir).mark_modified(call, 1);
}

TEST_CASE("view facts: halves modified by one call (U7)") {
  Views p;
  modify_halves(p);
  p.check({{"x", kEach}, {"first", kAll}, {"second", kEach}});
}

TEST_CASE("view facts: what a call is given by reference and leaves alone keeps its parts") {
  Views p;
  const GraphId graph = p.ir.create_graph("f");
  p.at = graph;
  p("relu", {p.input("a")}, "r");
  p.at = kMainGraph;
  const TensorId x = p.load("x");
  const TensorId first = p.half(x, 0, "first");
  p("copy_var_update_", {first, p.load("y", kEqual, kHalf)});
  const OpId call = p.emit("call", {x}, {{"graph", graph}});
  GraphEditor(p.ir).mark_modified(call, 0);
  p.check({{"x", kEach}, {"first", kAll}});
}

TEST_CASE("view facts: a loop that spoils one half spoils no other") {
  Views p;
  const GraphId graph = p.ir.create_graph("f");
  p.at = graph;
  const TensorId a = p.input("a", kHalf);
  p("add_", {a, p.load("u", StreamMode::kReplicate, kHalf)});
  p.at = kMainGraph;
  const TensorId x = p.variable("x");
  const TensorId first = p.half(x, 0, "first");
  p.half(x, 1, "second");
  const OpId loop = p.emit("repeat", {first}, {{"graph", graph}, {"count", std::int64_t{3}}});
  GraphEditor(p.ir).mark_modified(loop, 0);
  const PartitionAnalysis facts(p.ir);
  // The variable starts the next run with all that it ended with: one fact.
  CHECK(facts_of(p.ir, facts, {{"x", ""}, {"first", ""}}) == Expect{{"x", kEach}, {"first", kEach}});
}

TEST_CASE("view facts: branches that write the same memory under two names") {
  Views p;
  const auto graph_of = [&p](TensorType type, StreamMode mode) {
    const GraphId graph = p.ir.create_graph("branch");
    p.at = graph;
    const TensorId a = p.input("a", type);
    p("copy_var_update_", {a, p.load("u", mode, type)});
    p.at = kMainGraph;
    return graph;
  };
  const GraphId part = graph_of(kHalf, StreamMode::kReplicate), all = graph_of(test::kVector, kEqual);
  const TensorId x = p.load("x", kEqual);
  const TensorId first = p.half(x, 0, "first");
  p.half(x, 1, "second");
  const TensorId condition = p.load("condition", kEqual, {DType::kBool, {}});
  const OpId op = p.emit("conditional", {condition, first, x},
                         {{"then_branch", GraphId{part}}, {"else_branch", GraphId{all}}});
  GraphEditor(p.ir).mark_modified(op, 1);
  GraphEditor(p.ir).mark_modified(op, 2);
  // Sound, not exact: what one name lost, the other name's whole memory loses.
  p.check({{"first", kEach}, {"second", kEach}, {"x", kEach}});
}

TEST_CASE("view facts: values of a view change when its memory does, and only then") {
  Views p;
  const TensorId x = p.load("x", kEqual);                                         // 0
  const TensorId first = p.half(x, 0, "first"), second = p.half(x, 1, "second");  // 1, 2
  p("add_", {first, p.load("y", StreamMode::kReplicate, kHalf)});                 // 3, 4
  p("relu_", {second});                                                           // 5
  p("accumulator_zero_", {x});                                                    // 6
  CHECK(p.values(first) == std::vector<std::string>{"1:" + kAll, "4:" + kEach, "6:" + kAll});
  CHECK(p.values(second) == std::vector<std::string>{"2:" + kAll, "5:" + kAll, "6:" + kAll});
  CHECK(p.values(x) == std::vector<std::string>{"0:" + kAll, "4:" + kEach, "5:" + kEach, "6:" + kAll});
}

TEST_CASE("view facts: an order is needed where elements are shared, and nowhere else") {
  const auto error = [](std::int64_t second) {
    Views p;
    p.sequence = SequenceMode::kPass;
    const TensorId x = p.variable("x");
    const TensorId a = p.half(x, 0, "a"), b = p.half(x, second, "b");
    p("relu_", {a});
    p("relu", {b});
    return error_of<GraphError>([&p] { verify_order(p.ir); });
  };
  CHECK(error(1).empty());
  CHECK(error(0).find("Inplacing ambiguity detected. relu_: 'a' is modified here") == 0);
}

TEST_CASE("view facts: a write of the whole follows all uses of its parts") {
  Views p;
  p.sequence = SequenceMode::kPass;
  const TensorId x = p.variable("x");
  const TensorId written = p("relu_", {p.half(x, 0, "a")}, "written");
  p("relu_", {p.half(x, 1, "b")}, "other");
  CHECK(error_of<GraphError>([&p] { verify_order(p.ir); }).empty());
  p("add_", {x, p("concat_", {written, written}, "twice")});
  CHECK(error_of<GraphError>([&p] { verify_order(p.ir); }).find("relu_") != std::string::npos);
}

TEST_CASE("view facts: memory that a graph gets twice is modified through one input") {
  for (const bool overlap : {false, true}) {
    Views p;
    const GraphId graph = p.ir.create_graph("f");
    p.at = graph;
    const TensorId a = p.input("a", kHalf), b = p.input("b", kHalf);
    p("relu_", {a});
    p("relu_", {b});
    p.at = kMainGraph;
    const TensorId x = p.variable("x");
    const TensorId second =
        p("slice_", {x}, "second", {{"start", Ints{overlap ? 1 : 2}}, {"stop", Ints{overlap ? 3 : 4}}});
    const OpId call = p.emit("call", {p.half(x, 0, "first"), second}, {{"graph", graph}});
    GraphEditor(p.ir).mark_modified(call, 0);
    GraphEditor(p.ir).mark_modified(call, 1);
    const std::string error = error_of<GraphError>([&p] { verify(p.ir); });
    CHECK((error.find("'second' is passed twice and modified through both inputs") != std::string::npos) ==
          overlap);
  }
}

TEST_CASE("view facts: exchanges into one buffer merge where its parts are apart") {
  for (const std::int64_t second : {std::int64_t{0}, std::int64_t{1}}) {
    Views p;
    p.sequence = SequenceMode::kPass;
    const TensorId x = p.variable("x");
    const TensorId a = p.half(x, 0, "a"), b = p.half(x, second, "b");
    p.sequence = SequenceMode::kOrdered;
    for (const TensorId part : {a, b}) {
      p("remote_load_", {part}, {},
        {{"remote_buffer", p.ir.add_remote_buffer(kHalf, 1)}, {"entry", std::int64_t{0}}});
    }
    CHECK(merge_exchange(p.ir) == static_cast<std::size_t>(second));
  }
}

TEST_CASE("view facts: what the reference says of them (P1, P4, U7)") {
  const auto equal = [](const Views& p, const std::string& name) {
    return PopartAnalysis(p.ir).is_equal(p.ir.find_tensor(kMainGraph, name));
  };
  Views taint;
  taint("concat_", {taint.variable("w"), taint.load("x")}, "both");
  CHECK_FALSE(equal(taint, "w"));  // by a view that nobody writes
  Views repair;
  const TensorId x = repair.load("x");
  for (int i = 0; i < 2; ++i) repair("replicated_all_reduce_", {repair.half(x, i, fmt::format("half{}", i))});
  CHECK(equal(repair, "half1"));
  CHECK_FALSE(equal(repair, "x"));
  Views halves;
  modify_halves(halves);
  CHECK(equal(halves, "first"));
  CHECK_FALSE(equal(halves, "second"));
  CHECK(equal(halves, "x"));  // wrong: half of it is not
}

/// Random writes and reads of parts of one matrix against a fact an element.
TEST_CASE("view facts: facts of random parts are facts of their elements") {
  std::mt19937 random(7);
  int kept = 0, total = 0;
  for (int round = 0; round < 300; ++round) {
    Program p(4);
    PartitionTable& table = p.ir.partitions();
    const Shape shape{4, 6};
    const TensorId root = p.variable("x", {}, {DType::kFloat32, shape});
    std::vector<TensorId> views{root};
    std::map<TensorId, Ints> places;
    for (std::int64_t e = 0; e < 24; ++e) places[root].push_back(e);
    for (int k = 0; k < 8; ++k) {
      Ints start, stop, elements;
      for (const std::int64_t extent : shape) {
        start.push_back(static_cast<std::int64_t>(random() % static_cast<std::size_t>(extent)));
        stop.push_back(start.back() + 1 +
                       static_cast<std::int64_t>(random() % static_cast<std::size_t>(extent - start.back())));
      }
      for (std::int64_t i = start[0]; i < stop[0]; ++i) {
        for (std::int64_t j = start[1]; j < stop[1]; ++j) elements.push_back(6 * i + j);
      }
      views.push_back(p("slice_", {root}, {}, {{"start", start}, {"stop", stop}}));
      places[views.back()] = elements;
    }
    std::vector<PartitionId> facts(24, table.top());
    MemoryFacts memory(p.ir, kMainGraph, table.top());
    const std::vector<PartitionId> choices = {table.top(), table.bottom(), p.groups(1, 2).partition(table),
                                              p.groups(2, 2).partition(table)};
    for (int k = 0; k < 20; ++k) {
      const TensorId written = views[random() % views.size()];
      const PartitionId fact = choices[random() % choices.size()];
      memory.write(written, fact);
      for (const std::int64_t e : places[written]) facts[static_cast<std::size_t>(e)] = fact;
      for (const TensorId read : views) {
        PartitionId expected = table.top();
        for (const std::int64_t e : places[read])
          expected = table.meet(expected, facts[static_cast<std::size_t>(e)]);
        const PartitionId got = memory.read(read);
        REQUIRE(table.refines(got, expected));
        kept += got == expected ? 1 : 0;
        ++total;
      }
    }
  }
  CHECK(kept == total);  // so few parts are never met
}

}  // namespace
}  // namespace popsr
