// Facts by region across calls, loops and runs; loops followed iteration by iteration; conditions that are
// known.
#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

#include "analysis/names.h"
#include "popsr/analysis/explain/dataflow.h"
#include "popsr/analysis/partition_analysis.h"
#include "popsr/effects/verify.h"
#include "popsr/transform/graph_editor.h"
#include "support/program.h"

namespace popsr {
namespace {

using test::Attrs;
using test::Expect;
using test::facts_of;
using test::kAll;
using test::kCondition;
using test::kEach;
using test::kEqual;
using test::kHalf;
using test::kPairs;
using test::kUnequal;
using test::Program;
using Ints = std::vector<std::int64_t>;

struct Regions : Program {
  Regions() : Program(4) { sequence = SequenceMode::kOrdered; }

  TensorId half(TensorId t, std::int64_t index, std::string name = {}) {
    return (*this)("slice_", {t}, std::move(name),
                   {{"start", Ints{2 * index}}, {"stop", Ints{2 * index + 2}}});
  }
  template <class Build>
  GraphId graph(Build&& build) {
    const GraphId outer = std::exchange(at, ir.create_graph("f"));
    build();
    return std::exchange(at, outer);
  }
  /// (x) whose half `index` gets unequal values.
  GraphId spoils(std::int64_t index) {
    return graph([&] { (*this)("copy_var_update_", {half(input("x"), index), load("u", kUnequal, kHalf)}); });
  }
  OpId run(std::string_view op, const std::vector<TensorId>& inputs, Attrs attrs,
           const std::vector<std::uint32_t>& by_reference = {}) {
    const OpId id = emit(op, inputs, std::move(attrs));
    for (const std::uint32_t i : by_reference) GraphEditor(ir).mark_modified(id, i);
    return id;
  }
  void check(const Expect& expected) {
    verify(ir);
    const PartitionAnalysis facts(ir);
    CHECK(facts_of(ir, facts, expected) == expected);
  }
};

// Regions

TEST_CASE("regions: a graph that spoils one half of an input leaves the other half") {
  Regions p;
  const TensorId x = p.load("x", kEqual);
  p.run("call", {x}, {{"graph", p.spoils(0)}}, {0});
  p("relu", {p.half(x, 0)}, "first");
  p("relu", {p.half(x, 1)}, "second");
  p.check({{"first", kEach}, {"second", kAll}, {"x", kEach}});
}

TEST_CASE("regions: an input is given with the facts of its parts") {
  Regions p;
  const TensorId x = p.load("x", kEqual);
  p("copy_var_update_", {p.half(x, 0), p.load("u", kUnequal, kHalf)});
  const GraphId f = p.graph([&] {
    const TensorId in = p.input("in");
    p.ir.add_output(p.at, p("relu", {p.half(in, 1)}, "inner"));
    p.ir.add_output(p.at, in);
  });
  const OpId call = p.run("call", {x}, {{"graph", f}});
  p("relu", {p.ir.op(call).outputs[0]}, "relu_of_half");
  p("relu", {p.half(p.ir.op(call).outputs[1], 1)}, "half_of_result");
  p.check({{"f_subgraph(0)/inner", kAll}, {"relu_of_half", kAll}, {"half_of_result", kAll}});
}

TEST_CASE("regions: through two calls, a view, and a conditional") {
  Regions p;
  const GraphId inner = p.spoils(1);
  const GraphId outer = p.graph([&] { p.run("call", {p.input("y")}, {{"graph", inner}}, {0}); });
  const GraphId nothing = p.graph([&] { p.input("z"); });
  const TensorId whole = p.load("whole", kEqual, {DType::kFloat32, {2, 4}});
  const TensorId row = p("slice_", {whole}, {}, {{"start", Ints{1, 0}}, {"stop", Ints{2, 4}}});
  const TensorId flat = p("reshape_", {row}, {}, {{"shape", Ints{4}}});
  p.run("conditional", {p.load("c", kEqual, kCondition), flat, flat},
        {{"then_branch", outer}, {"else_branch", nothing}}, {1, 2});
  const auto part = [&](std::int64_t i, std::int64_t j, std::string name) {
    p("relu", {p("slice_", {whole}, {}, {{"start", Ints{i, j}}, {"stop", Ints{i + 1, j + 2}}})},
      std::move(name));
  };
  part(0, 0, "above");
  part(1, 0, "left");
  part(1, 2, "right");
  p.check({{"above", kAll}, {"left", kAll}, {"right", kEach}, {"whole", kEach}});
}

TEST_CASE("regions: a loop spoils a half in its second iteration") {
  for (const auto& [count, expected] : {std::pair(std::int64_t{1}, kAll), {2, kEach}, {5, kEach}}) {
    CAPTURE(count);
    Regions p;
    // (a, x, u): the first half of x gets a, which is u from the second iteration on.
    const GraphId f = p.graph([&] {
      const TensorId a = p.input("a", kHalf), x = p.input("x"), u = p.input("u", kHalf);
      p("copy_var_update_", {p.half(x, 0), a});
      p.ir.add_output(p.at, p("relu", {u}));
    });
    const TensorId x = p.load("x", kEqual);
    p.run("repeat", {p.load("w", kEqual, kHalf), x, p.load("u", kUnequal, kHalf)},
          {{"graph", f}, {"count", count}}, {1});
    p("relu", {p.half(x, 0)}, "first");
    p("relu", {p.half(x, 1)}, "second");
    p.check({{"first", expected}, {"second", kAll}});
  }
}

TEST_CASE("regions: a variable with one unequal half keeps its equal half from run to run") {
  for (const bool in_call : {false, true}) {
    CAPTURE(in_call);
    Regions p;
    const TensorId v = p.variable("v");
    p("relu", {p.half(v, 0)}, "first");
    p("relu", {p.half(v, 1)}, "second");
    if (in_call) {
      p.run("call", {v}, {{"graph", p.spoils(0)}}, {0});
    } else {
      p("copy_var_update_", {p.half(v, 0), p.load("u", kUnequal, kHalf)});
    }
    p.check({{"first", kEach}, {"second", kAll}, {"v", kEach}});
  }
}

TEST_CASE("regions: halves that are swapped from run to run fall to the meet") {
  Regions p;
  const TensorId v = p.variable("v");
  const TensorId first = p.half(v, 0), second = p.half(v, 1);
  p("relu", {second}, "held");
  p("copy_var_update_", {second, first});
  p("copy_var_update_", {first, p.load("u", kUnequal, kHalf)});
  p.check({{"held", kEach}, {"v", kEach}});
}

// Loops

/// (a, b) -> (b, a)
GraphId swap_graph(Regions& p, TensorType type = test::kVector) {
  return p.graph([&] {
    const TensorId a = p.input("a", type), b = p.input("b", type);
    p.ir.add_output(p.at, b);
    p.ir.add_output(p.at, a);
  });
}

TEST_CASE("loops: an even number of swaps changes nothing, an odd one swaps") {
  for (const std::int64_t count : {1, 2, 3, 4, 1000, 1001}) {
    CAPTURE(count);
    Regions p;
    const OpId loop = p.run("repeat", {p.load("x", kEqual), p.load("y", kUnequal)},
                            {{"graph", swap_graph(p)}, {"count", count}});
    p("relu", {p.ir.op(loop).outputs[0]}, "a");
    p("relu", {p.ir.op(loop).outputs[1]}, "b");
    const bool even = count % 2 == 0;
    p.check({{"a", even ? kAll : kEach}, {"b", even ? kEach : kAll}});
    const PartitionAnalysis facts(p.ir);
    const GraphId body = p.ir.op(loop).get(Attr<GraphId>{"graph"});
    // One context, of what holds in all iterations.
    REQUIRE(facts.contexts(body).size() == 1);
    const PartitionId inside = facts.context(facts.contexts(body)[0]).inputs[0];
    CHECK(p.ir.partitions().to_string(inside) == (count == 1 ? kAll : kEach));
  }
}

TEST_CASE("loops: one iteration is a call") {
  Regions p;
  const GraphId f = p.graph([&] {
    const TensorId a = p.input("a"), b = p.input("b");
    p.ir.add_output(p.at, p("relu", {a}, "inside"));
    p("copy_var_update_", {a, b});
    p.ir.add_output(p.at, p("relu", {b}));
  });
  const TensorId x = p.load("x", kEqual), y = p.load("y", kUnequal);
  p.run("repeat", {x, y}, {{"graph", f}, {"count", std::int64_t{1}}}, {});
  p.check({{"f_subgraph(0)/inside", kAll}});
}

TEST_CASE("loops: values are followed only so far") {
  for (const auto& [size, expected] : {std::pair(12, kAll), {40, kEach}}) {
    CAPTURE(size);
    Regions p;
    std::vector<TensorId> in, inputs;
    const GraphId rotate = p.graph([&, size = size] {
      for (int i = 0; i < size; ++i) in.push_back(p.input("in"));
      for (int i = 0; i < size; ++i) p.ir.add_output(p.at, in[static_cast<std::size_t>((i + 1) % size)]);
    });
    for (int i = 0; i < size; ++i) inputs.push_back(p.load("x", i == 0 ? kUnequal : kEqual));
    const OpId loop = p.run("repeat", inputs, {{"graph", rotate}, {"count", std::int64_t{size}}});
    p("relu", {p.ir.op(loop).outputs[1]}, "y");
    p.check({{"y", expected}});
  }
}

TEST_CASE("loops: a body that rounds draws the noise of all iterations") {
  Regions p;
  const TensorType narrow{DType::kBFloat16, {4}};
  const GraphId f = p.graph([&] {
    const TensorId a = p.input("a", narrow), b = p.input("b", narrow);
    p.ir.add_output(p.at, p("add", {b, b}));
    p.ir.add_output(p.at, a);
  });
  const OpId loop = p.run("repeat", {p.load("x", kEqual, narrow), p.load("y", kUnequal, narrow)},
                          {{"graph", f}, {"count", std::int64_t{2}}});
  p("relu", {p.ir.op(loop).outputs[0]}, "a");
  p("relu", {p.ir.op(loop).outputs[1]}, "b");
  p.check({{"a", kAll}, {"b", kEach}});  // without rounding
  // The sum of the first iteration is drawn for each replica, and so is the second one's, of equal values.
  const PartitionAnalysis facts(p.ir, SeedRules(SeedRule::kPartition));
  CHECK(facts_of(p.ir, facts, {{"a", ""}, {"b", ""}}) == Expect{{"a", kEach}, {"b", kEach}});
}

TEST_CASE("conditionals: a store in the branch that no replica takes leaves remote memory as it was") {
  for (const bool loads : {false, true}) {
    CAPTURE(loads);
    Regions p;
    const RemoteId buffer = p.ir.add_remote_buffer(test::kVector, 1);
    const Attrs entry{{"remote_buffer", buffer}, {"entry", std::int64_t{0}}};
    const GraphId nothing = p.graph([] {});
    const GraphId load = p.graph([&] { p("remote_load", {}, {}, entry); });
    const GraphId store = p.graph([&] { p.emit("remote_store", {p.input("x")}, entry); });
    const GraphId outer = p.graph([&] {
      const TensorId c = p.input("c", kCondition), x = p.input("x");
      p.run("conditional", {c, x}, {{"then_branch", loads ? load : nothing}, {"else_branch", store}});
    });
    const TensorId c = p.load("c", kEqual, kCondition), x = p.load("x", kUnequal);
    p.run("conditional", {c, c, x}, {{"then_branch", outer}, {"else_branch", nothing}});
    const PartitionAnalysis facts(p.ir);
    Dataflow flow(facts);
    const FrameId inside = flow.frame_of(facts.contexts(outer).at(0));
    // In there c holds.
    CHECK(flow.fact(flow.last(inside, p.ir.remote(buffer).entries[0])) == p.ir.partitions().top());
  }
}

TEST_CASE("loops: remote memory that two iterations exchange") {
  Regions p;
  const RemoteId buffer = p.ir.add_remote_buffer(test::kVector, 2);
  const auto entry = [&](std::int64_t e) { return Attrs{{"remote_buffer", buffer}, {"entry", e}}; };
  const GraphId f = p.graph([&] {
    const TensorId a = p("remote_load", {}, {}, entry(0)), b = p("remote_load", {}, {}, entry(1));
    p.emit("remote_store", {a}, entry(1));
    p.emit("remote_store", {b}, entry(0));
  });
  p.emit("remote_store", {p.load("x", kEqual)}, entry(0));
  p.emit("remote_store", {p.load("y", kUnequal)}, entry(1));
  p.run("repeat", {}, {{"graph", f}, {"count", std::int64_t{2}}});
  p("remote_load", {}, "a", entry(0));
  p("remote_load", {}, "b", entry(1));
  p.check({{"a", kAll}, {"b", kEach}});
}

// Conditions

/// (c, x, y): copies y to x where c holds (`then`), or where it does not.
GraphId copies_where(Regions& p, bool then, bool rewrites = false) {
  const GraphId copies = p.graph([&] { p.ir.add_output(p.at, p("relu", {p.input("y")})); });
  const GraphId keeps = p.graph([&] { p.ir.add_output(p.at, p("relu", {p.input("x")})); });
  return p.graph([&] {
    const TensorId c = p.input("c", kCondition), x = p.input("x"), y = p.input("y");
    if (rewrites) p("copy_var_update_", {c, p.load("d", kEqual, kCondition)});
    const OpId inner =
        then ? p.run("conditional", {c, y, x}, {{"then_branch", copies}, {"else_branch", keeps}})
             : p.run("conditional", {c, x, y}, {{"then_branch", keeps}, {"else_branch", copies}});
    p.ir.add_output(p.at, p.ir.op(inner).outputs[0]);
  });
}

TEST_CASE("conditions: a conditional inside a branch of one on the same condition runs one branch") {
  for (const bool rewrites : {false, true}) {
    for (const bool in_call : {false, true}) {
      CAPTURE(rewrites);
      CAPTURE(in_call);
      Regions p;
      // It is x in both if c holds, else y.
      GraphId first = copies_where(p, false, rewrites), second = copies_where(p, true, rewrites);
      const auto called = [&](GraphId graph) {
        return p.graph([&] {
          const TensorId c = p.input("c", kCondition), x = p.input("x"), y = p.input("y");
          const OpId call = p.run("call", {c, x, y}, {{"graph", graph}});
          p.ir.add_output(p.at, p.ir.op(call).outputs[0]);
        });
      };
      if (in_call) first = called(first), second = called(second);
      const TensorId c = p.load("c", kEqual, kCondition), x = p.load("x", kEqual), y = p.load("y", kUnequal);
      const OpId kept =
          p.run("conditional", {c, c, x, y, c, y, x}, {{"then_branch", first}, {"else_branch", second}});
      p("relu", {p.ir.op(kept).outputs[0]}, "kept");
      const OpId other =
          p.run("conditional", {c, c, x, y, c, y, x}, {{"then_branch", second}, {"else_branch", first}});
      p("relu", {p.ir.op(other).outputs[0]}, "other");
      // first: c holds: keeps x. second(y, x): c fails: keeps y.
      p.check({{"kept", kEach}, {"other", kEach}});
      const OpId equal =
          p.run("conditional", {c, c, x, y, c, x, y}, {{"then_branch", first}, {"else_branch", second}});
      p("relu", {p.ir.op(equal).outputs[0]}, "equal");
      p.check({{"equal", rewrites ? kEach : kAll}});
    }
  }
}

TEST_CASE("conditions: what the branch that never runs writes does not count") {
  Regions p;
  const GraphId spoils = p.spoils(0), nothing = p.graph([&] { p.input("x"); });
  const GraphId then_branch = p.graph([&] {
    const TensorId c = p.input("c", kCondition), x = p.input("x");
    p.run("conditional", {c, x, x}, {{"then_branch", nothing}, {"else_branch", spoils}}, {1, 2});
  });
  const TensorId c = p.load("c", kEqual, kCondition), x = p.load("x", kEqual);
  p.run("conditional", {c, c, x, x}, {{"then_branch", then_branch}, {"else_branch", nothing}}, {2, 3});
  p.check({{"x", kAll}});
}

TEST_CASE("conditions: of unequal ones each branch is a group of replicas that agree") {
  Regions p;
  const GraphId first = copies_where(p, false), second = copies_where(p, true);
  const TensorId c = p.variable("c", p.groups(1, 2), kCondition);
  const TensorId x = p.load("x", kEqual), y = p.load("y", kUnequal);
  const OpId op =
      p.run("conditional", {c, c, x, y, c, x, y}, {{"then_branch", first}, {"else_branch", second}});
  p("relu", {p.ir.op(op).outputs[0]}, "out");
  p.check({{"out", kPairs}});
}

TEST_CASE("conditions: a value that both branches hand on does not depend on the condition") {
  for (const bool written : {false, true}) {
    Regions p;
    const GraphId first = p.graph([&] {
      const TensorId x = p.input("x");
      if (written) p("copy_var_update_", {x, p.load("y", kEqual)});
      p.ir.add_output(p.at, x);
    });
    const GraphId second = p.graph([&] {
      p.input("a");
      p.ir.add_output(p.at, p.input("x"));
    });
    const TensorId c = p.load("c", kUnequal, kCondition), a = p.load("a", kUnequal), x = p.load("x", kEqual);
    const OpId op = p.run("conditional", {c, x, a, x}, {{"then_branch", first}, {"else_branch", second}});
    p("relu", {p.ir.op(op).outputs[0]}, "out");
    p.check({{"out", written ? kEach : kAll}});
  }
}

}  // namespace
}  // namespace popsr
