// Conditionals through the C++ core: execution partitions, what branches leave behind, masked execution.
#include <doctest/doctest.h>

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "popsr/base/error.h"
#include "popsr/effects/verify.h"
#include "popsr/effects/written_inputs.h"
#include "popsr/ir/calls/called_graphs.h"
#include "popsr/runtime/session/session.h"
#include "popsr/transform/graph_editor.h"
#include "support/program.h"
#include "support/streams.h"

using namespace popsr;
using popsr::test::borrow;
using popsr::test::error_of;
using popsr::test::Expect;
using popsr::test::facts_of;
using popsr::test::Program;

namespace {

const std::string kTop = "{0,1,2,3}";
const std::string kPairs = "{0,1}{2,3}";
const std::string kBottom = "{0}{1}{2}{3}";
const TensorType kCondition{DType::kBool, {}};

/// A graph that `build` fills.
template <class Build>
GraphId graph_of(Program& p, std::string_view name, Build&& build) {
  const GraphId outer = std::exchange(p.at, p.ir.create_graph(name));
  build();
  return std::exchange(p.at, outer);
}

/// op(x) as a graph.
GraphId unary(Program& p, std::string_view op) {
  return graph_of(p, op, [&] { p.ir.add_output(p.at, p(op, {p.input("x")}, "y")); });
}

OpId conditional(Program& p, TensorId condition, GraphId then_branch, GraphId else_branch,
                 std::vector<TensorId> inputs) {
  inputs.insert(inputs.begin(), condition);
  return p.emit("conditional", std::move(inputs),
                {{"then_branch", then_branch}, {"else_branch", else_branch}}, "made");
}

/// The variable's value of each replica after one run, in which the condition has the given rows.
std::vector<float> variable_after(const Program& p, TensorId condition, const std::vector<std::uint8_t>& rows,
                                  TensorId v, const SessionOptions& options) {
  Session session(borrow(p), options);
  session.write_variable(condition, HostRows::kGroups, reinterpret_cast<const std::byte*>(rows.data()));
  IdVector<StreamId, std::vector<float>> data(p.ir.num_streams());
  std::vector<StreamBuffer> buffers;
  for (const StreamId id : data.ids()) {
    const Stream& stream = p.ir.stream(id);
    const std::int64_t rows_of = num_rows(stream, p.ir.replication());
    for (std::int64_t i = 0; i < rows_of * num_elements(stream.type.shape); ++i) {
      data[id].push_back(static_cast<float>(i % 7) + 1);
    }
    buffers.push_back({reinterpret_cast<std::byte*>(data[id].data()), 1});
  }
  session.run(buffers, {});
  const std::int64_t elements = num_elements(p.ir.tensor(v).type.shape);
  std::vector<float> values(static_cast<std::size_t>(elements * p.ir.replication()));
  session.read_variable(v, HostRows::kReplicas, reinterpret_cast<std::byte*>(values.data()));
  return values;
}

}  // namespace

TEST_CASE("analysis: results keep the condition and what both branches keep") {
  Program p(4);
  const TensorId pairs = p.variable("pairs", p.groups(1, 2), kCondition);
  const TensorId own = p.load("own", StreamMode::kReplicate, kCondition);
  const TensorId columns = p.variable("columns", p.groups(2, 2)), w = p.variable("w");
  const GraphId f = unary(p, "exp"), g = unary(p, "relu");
  const auto made = [&](TensorId condition, TensorId x, TensorId y) {
    return p.ir.op(conditional(p, condition, f, g, {x, y})).outputs[0];
  };
  const TensorId constant = p.constant("constant", kCondition);
  const std::vector<std::pair<TensorId, std::string>> expect = {{made(constant, w, w), kTop},
                                                                {made(constant, w, columns), "{0,2}{1,3}"},
                                                                {made(pairs, w, w), kPairs},
                                                                {made(pairs, w, columns), kBottom},
                                                                {made(own, w, w), kBottom}};
  const PartitionAnalysis facts(p.ir);
  for (const auto& [tensor, text] : expect) {
    CHECK(p.ir.partitions().to_string(facts.partition(tensor)) == text);
  }
  // Values inside are claimed for replicas that run the branch together.
  CHECK(facts_of(p.ir, facts, {{"relu_subgraph(1)/y", {}}}).begin()->second == kBottom);
}

TEST_CASE("analysis: a context knows the conditionals that narrowed it") {
  Program p(4);
  const TensorId pairs = p.variable("pairs", p.groups(1, 2), kCondition);
  const TensorId own = p.load("own", StreamMode::kReplicate, kCondition);
  const TensorId same = p.constant("same", kCondition);
  const TensorId w = p.variable("w");
  const GraphId leaf = unary(p, "exp"), other = unary(p, "relu");
  OpId inner = kNone;
  const GraphId middle = graph_of(p, "middle", [&] {
    const TensorId c = p.input("c", kCondition), x = p.input("x");
    inner = conditional(p, c, leaf, other, {x, x});
    p.ir.add_output(p.at, p.ir.op(inner).outputs[0]);
  });
  const OpId unnarrowed = conditional(p, same, middle, middle, {pairs, w, pairs, w});
  const OpId outer = conditional(p, pairs, middle, other, {own, w, w});
  const PartitionAnalysis facts(p.ir);
  PartitionTable& table = p.ir.partitions();
  const PartitionId top = table.top(), bottom = table.bottom();
  const PartitionId by_pairs = p.groups(1, 2).partition(table);
  CHECK(facts.diverging_op(facts.main(), top) == kNone);

  const auto of = [&](OpId op) -> FactView {
    const Op& found = p.ir.op(op);
    const auto& ops = p.ir.graph(found.graph).ops;
    return facts.main().ops[static_cast<std::size_t>(std::ranges::find(ops, op) - ops.begin())];
  };
  const Context& before = facts.context(of(unnarrowed).callee);  // an equal condition parts nobody
  CHECK(before.exec == top);
  CHECK(before.narrowing == kNoNarrowing);
  const Context& halves = facts.context(before.ops[0].callee);
  CHECK(facts.diverging_op(halves, top) == inner);
  CHECK(facts.diverging_op(halves, by_pairs) == kNone);

  const Context& outside = facts.context(of(outer).callee);
  CHECK(outside.exec == by_pairs);
  CHECK(facts.diverging_op(outside, top) == outer);
  const Context& inside = facts.context(outside.ops[0].otherwise);
  CHECK(inside.exec == bottom);
  CHECK(facts.narrowing(inside.narrowing).op == inner);
  CHECK(facts.diverging_op(inside, top) == outer);
  CHECK(facts.diverging_op(inside, by_pairs) == inner);
  CHECK(facts.diverging_op(inside, bottom) == kNone);
}

TEST_CASE("analysis: places that a branch writes") {
  Program p(4);
  p.sequence = SequenceMode::kOrdered;
  const TensorId condition = p.variable("condition", p.groups(1, 2), kCondition);
  const TensorId v = p.variable("v"), kept = p.variable("kept");
  const RemoteId buffer = p.ir.add_remote_buffer(test::kVector, 2);
  const auto remote = [buffer](std::int64_t entry) {
    return test::Attrs{{"remote_buffer", buffer}, {"entry", entry}};
  };
  const GraphId writes = graph_of(p, "writes", [&] {
    const TensorId a = p.input("a"), b = p.input("b");
    p("add_", {a, b});
    p.emit("remote_store", {b}, remote(1));
    p("remote_load", {}, {}, remote(0));
  });
  const GraphId nothing = p.ir.create_graph("nothing");
  const OpId op = conditional(p, condition, writes, nothing, {v, kept});
  GraphEditor(p.ir).mark_modified(op, 1);
  GraphEditor(p.ir).mark_modified(op, 2);
  verify(p.ir);
  WrittenInputs written(p.ir);
  CHECK(written.by_call(p.ir.op(op), 1));
  CHECK_FALSE(written.by_call(p.ir.op(op), 2));
  const PartitionAnalysis facts(p.ir);
  const auto text = [&](TensorId t) { return p.ir.partitions().to_string(facts.variable(t)); };
  CHECK(text(v) == kPairs);
  CHECK(text(kept) == kTop);
  CHECK(text(p.ir.remote(buffer).entries[0]) == kTop);
  CHECK(text(p.ir.remote(buffer).entries[1]) == kPairs);  // who does not store keeps what was there
}

TEST_CASE("the graphs that an op runs take its inputs in order") {
  Program p(1);
  const GraphId f = unary(p, "exp"), nothing = p.ir.create_graph("nothing");
  const TensorId c = p.constant("c", kCondition), x = p.variable("x");
  const auto range = [&](OpId id) {
    std::vector<std::uint32_t> flat;
    for (const CalledGraph& called : called_graphs(p.ir, p.ir.op(id))) {
      flat.insert(flat.end(), {called.graph.value, called.first, called.end});
    }
    return flat;
  };
  using Flat = std::vector<std::uint32_t>;
  CHECK(range(p.emit("call", {x}, {{"graph", f}})) == Flat{f.value, 0, 1});
  const GraphId g = unary(p, "relu");
  CHECK(range(conditional(p, c, f, g, {x, x})) == Flat{f.value, 1, 2, g.value, 2, 3});
  const OpId none = conditional(p, c, nothing, nothing, {});
  CHECK(range(none) == Flat{nothing.value, 1, 1, nothing.value, 1, 1});
  CHECK(range(p.emit("relu", {x})).empty());
}

TEST_CASE("runs of blocks are split where replicas take the other branch") {
  const std::vector<std::uint8_t> rows = {1, 0, 1, 1, 0, 0, 1, 0};
  Program p(8);
  p.sequence = SequenceMode::kOrdered;
  const TensorId condition = p.variable("condition", p.groups(1, 1), kCondition);
  const TensorId v = p.variable("v", p.groups(1, 1));
  const TensorId x = p.load("x"), shared = p.load("shared", StreamMode::kBroadcast);
  const auto add = [&](std::string_view op) {
    return graph_of(p, op, [&] {
      const TensorId total = p.input("total");
      p("add_", {total, p(op, {p.input("a"), p.input("b")})});
    });
  };
  const OpId op = conditional(p, condition, add("add"), add("sub"), {v, x, shared, v, x, shared});
  GraphEditor(p.ir).mark_modified(op, 1);
  GraphEditor(p.ir).mark_modified(op, 4);
  for (const SessionOptions& options : std::vector<SessionOptions>{{}, {.dedup = false}, {.check = true}}) {
    const std::vector<float> after = variable_after(p, condition, rows, v, options);
    for (std::size_t i = 0; i < after.size(); ++i) {
      const auto own = static_cast<float>(i % 7) + 1, all = static_cast<float>(i % 4) + 1;
      CHECK(after[i] == (rows[i / 4] != 0 ? own + all : own - all));
    }
  }
}

TEST_CASE(
    "a collective in place reads its whole group before it writes, also per replicas that run together") {
  const std::vector<std::uint8_t> rows = {1, 1};
  Program p(4);
  p.sequence = SequenceMode::kOrdered;
  const TensorId condition = p.variable("condition", p.groups(2, 2), kCondition);
  const TensorId v = p.variable("v");
  p("accumulate_", {v, p.load("x")});
  const GraphId reduce =
      graph_of(p, "reduce", [&] { p("replicated_all_reduce_", {p.input("total")}, {}, {}); });
  const GraphId nothing = p.ir.create_graph("nothing");
  GraphEditor(p.ir).mark_modified(conditional(p, condition, reduce, nothing, {v}), 1);
  const std::vector<float> expect = variable_after(p, condition, rows, v, {.dedup = false});
  CHECK(expect[0] == 1.0F + 5.0F + 2.0F + 6.0F);
  for (std::size_t i = 0; i < 16; ++i) CHECK(expect[i] == expect[i % 4]);
  CHECK(variable_after(p, condition, rows, v, {}) == expect);
  CHECK(variable_after(p, condition, rows, v, {.check = true}) == expect);
  const std::vector<std::uint8_t> parted = {1, 0};
  const std::string message = error_of<ReplicaError>([&] { variable_after(p, condition, parted, v, {}); });
  CHECK(message.find("replicated_all_reduce_: replicas of one group disagree about taking part, got {0,2} of "
                     "group {0,1,2,3}") == 0);
  CHECK(message.find("because of condition 'condition'") != std::string::npos);
}

TEST_CASE("an offset out of range counts only where it is used") {
  const auto message = [](const std::vector<std::uint8_t>& rows) {
    Program p(2);
    p.sequence = SequenceMode::kOrdered;
    const TensorId condition = p.variable("condition", p.groups(1, 1), kCondition);
    const TensorId v = p.variable("v");
    const RemoteId buffer = p.ir.add_remote_buffer(test::kVector, 2);
    // The bits of 1.0F: far outside.
    const TensorId offset = p.load("offset", StreamMode::kReplicate, {DType::kInt32, {}});
    const GraphId load = graph_of(p, "load", [&] {
      const TensorId total = p.input("total");
      p("remote_load_", {total, p.input("offset", {DType::kInt32, {}})}, {}, {{"remote_buffer", buffer}});
    });
    const GraphId nothing = p.ir.create_graph("nothing");
    GraphEditor(p.ir).mark_modified(conditional(p, condition, load, nothing, {v, offset}), 1);
    return error_of<OutOfRangeError>([&] { variable_after(p, condition, rows, v, {}); });
  };
  CHECK(message({0, 0}).empty());
  CHECK(message({0, 1}).find("remote_load_: offset is outside the buffer") == 0);
}

TEST_CASE("the dynamic oracle sees a wrong claim about a value of a branch") {
  auto registry = std::make_shared<Registry>(*default_registry());
  OpDef wrong = registry->at("exp");
  wrong.replicas.partition = equal_everywhere;
  registry->replace(wrong);
  const auto message = [&](std::vector<std::uint8_t> rows) {
    Program p(4, registry);
    const TensorId condition = p.variable("condition", p.groups(1, 2), kCondition);
    const TensorId v = p.variable("v");
    const TensorId x = p.load("x");
    conditional(p, condition, unary(p, "exp"), unary(p, "relu"), {x, x});
    return error_of<ReplicaError>([&] { variable_after(p, condition, rows, v, {.check = true}); });
  };
  CHECK(message({0, 1}).find("differs between replicas 2 and 3 after exp") != std::string::npos);
  CHECK(message({1, 0}).find("differs between replicas 0 and 1 after exp") != std::string::npos);
  CHECK(message({0, 0}).empty());  // nobody runs it
}

TEST_CASE("what a branch writes is still there when its claims are checked") {
  // Nobody reads the copy that the inner branch writes: its memory must not be reused before the inner end.
  Program p(2);
  p.sequence = SequenceMode::kOrdered;
  const TensorId condition = p.variable("condition", {}, kCondition);
  const TensorId v = p.variable("v");
  const GraphId nothing = p.ir.create_graph("nothing");
  const GraphId inner = graph_of(p, "inner", [&] {
    const TensorId total = p.input("total");
    p("add_", {total, p.constant("zero")});
    p("exp", {p("add", {p.load("x"), p.load("y")})});
  });
  const GraphId outer = graph_of(p, "outer", [&] {
    const TensorId total = p.input("total");
    GraphEditor(p.ir).mark_modified(conditional(p, p.constant("c", kCondition), nothing, inner, {total}), 1);
  });
  conditional(p, condition, nothing, outer, {v});
  CHECK(variable_after(p, condition, {0}, v, {.check = true}) == std::vector<float>(8, 0.0F));
}

TEST_CASE("branches count for recursion and depth") {
  Program p(1);
  const TensorId c = p.constant("c", kCondition);
  GraphId inner = p.ir.create_graph("g");
  const GraphId nothing = p.ir.create_graph("nothing");
  const GraphId first = inner;
  for (int i = 0; i < 200; ++i) {
    const GraphId next = graph_of(p, "g", [&] {
      conditional(p, p.constant("c", kCondition), i % 2 == 0 ? inner : nothing, i % 2 == 0 ? nothing : inner,
                  {});
    });
    inner = next;
  }
  CHECK(error_of<GraphError>([&] { conditional(p, c, nothing, inner, {}); }).find("nested too deeply") !=
        std::string::npos);
  p.at = first;
  CHECK(error_of<GraphError>([&] {
          conditional(p, p.constant("c", kCondition), nothing, p.ir.op(p.ir.graph(inner).ops[0]).graph, {});
        }).find("got a recursion") != std::string::npos);
}
