// The oracle of the fuzz, on programs small enough to know the answer.
#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

#include "analysis/names.h"
#include "fuzz/facts_check.h"

#include "popsr/transform/graph_editor.h"

namespace popsr {
namespace {

using namespace test;

/// Exact partition of the first output of an op of the main graph, over all sessions and runs.
std::string exact(const Program& p, OpId op, int runs = 1) {
  Herbrand herbrand(p.ir);
  PairCollector collector;
  for (std::uint64_t session = 0; session < 30; ++session) herbrand.session(session, runs, collector);
  for (const ValuePairs& value : collector.take()) {
    if (value.place.path != 0 || value.place.op != p.ir.op(op).schedule.position || value.place.index != 0)
      continue;
    return p.ir.partitions().to_string(exact_partition(p.ir.partitions(), value).value());
  }
  return "never run";
}

template <class Build>
GraphId graph_of(Program& p, Build&& build) {
  p.at = p.ir.create_graph("f");
  build();
  return std::exchange(p.at, kMainGraph);
}

GraphId unary(Program& p, std::string_view op) {
  return graph_of(p, [&] { p.ir.add_output(p.at, p(op, {p.input("x")})); });
}

TEST_CASE("herbrand: equal terms are equal values, op by op") {
  Program p(4);
  const TensorId x = p.load("x"), w = p.variable("w"), rows = p.variable("rows", p.groups(1, 2));
  const std::vector<std::pair<OpId, std::string>> expect = {
      {p.emit("relu", {x}), kEach},
      {p.emit("relu", {w}), kAll},
      {p.emit("add", {w, rows}), kPairs},
      {p.emit("replicated_all_reduce", {x}, {{"group", p.groups(1, 2)}}), kPairs},
      {p.emit("replicated_all_reduce", {rows}, {{"group", p.groups(2, 2)}}), kAll},
      {p.emit("replicated_reduce_scatter", {rows}, {{"group", p.groups(2, 2)}}), kPairs},
      {p.emit("replicated_broadcast", {x}, {{"group", p.groups(2, 2)}, {"root", std::int64_t{1}}}),
       "{0,2}{1,3}"},
      {p.emit("replicated_broadcast_grad", {w}, {{"group", p.groups(1, 4)}, {"root", std::int64_t{1}}}),
       "{0,2,3}{1}"},
      {p.emit("replicated_permute", {rows}, {{"mapping", std::vector<std::int64_t>{0, 2, 1, -1}}}),
       "{0,2}{1}{3}"},
      {p.emit("replica_index", {}, {{"group", p.groups(1, 2)}}), "{0,2}{1,3}"},
      {p.emit("replicated_slice", {w}, {{"group", p.groups(1, 2)}}), "{0,2}{1,3}"},
  };
  for (const auto& [op, text] : expect) CHECK(exact(p, op) == text);
}

TEST_CASE("herbrand: calls by value and by reference") {
  for (const bool by_reference : {false, true}) {
    Program p(4);
    p.sequence = SequenceMode::kOrdered;
    const GraphId f = graph_of(p, [&] {
      const TensorId a = p.input("a");
      p("add_", {a, p.input("b")});
    });
    const TensorId y = p.load("y", StreamMode::kBroadcast), x = p.load("x");
    const OpId call = p.emit("call", {y, x}, {{"graph", f}});
    if (by_reference) GraphEditor(p.ir).mark_modified(call, 0);
    CHECK(exact(p, p.emit("relu", {y})) == (by_reference ? kEach : kAll));
  }
}

TEST_CASE("herbrand: loops hand on values and keep what they were given by reference") {
  for (const auto& [count, expected] : {std::pair(std::int64_t{0}, kAll), {2, kAll}, {3, kPairs}}) {
    Program p(4);
    // (a, b, c, x) -> (b, c, c + x): a difference in x reaches a in the third iteration.
    const GraphId f = graph_of(p, [&] {
      p.input("a");
      const TensorId b = p.input("b"), c = p.input("c"), next = p("add", {c, p.input("x")});
      for (const TensorId t : {b, c, next}) p.ir.add_output(p.at, t);
    });
    const TensorId w = p.variable("w"), rows = p.variable("rows", p.groups(1, 2));
    CHECK(exact(p, p.emit("repeat", {w, w, w, rows}, {{"graph", f}, {"count", count}})) == expected);
  }
  for (const auto& [count, expected] : {std::pair(std::int64_t{1}, kAll), {2, kEach}}) {
    Program p(4);
    const GraphId f = graph_of(p, [&] {
      p.sequence = SequenceMode::kOrdered;
      p.input("a");
      const TensorId state = p.input("state");
      p.ir.add_output(p.at, p("relu", {state}));
      p("add_", {state, p.input("x")});
    });
    const TensorId v = p.load("v", StreamMode::kBroadcast), w = p.variable("w"), x = p.load("x");
    const OpId loop = p.emit("repeat", {w, v, x}, {{"graph", f}, {"count", count}});
    CHECK(exact(p, loop) == kAll);  // each iteration reads a fresh copy
    GraphEditor(p.ir).mark_modified(loop, 1);
    CHECK(exact(p, loop) == expected);
  }
}

TEST_CASE("herbrand: equal conditions decide alike, others part") {
  Program p(4);
  const TensorId pairs = p.variable("pairs", p.groups(1, 2), kCondition), w = p.variable("w");
  const TensorId all = p.variable("all", {}, kCondition);
  const GraphId f = unary(p, "relu"), g = unary(p, "tanh"), reduce = unary(p, "replicated_all_reduce");
  const auto run = [&](TensorId condition, GraphId then_branch, GraphId else_branch) {
    return p.emit("conditional", {condition, w, w},
                  {{"then_branch", then_branch}, {"else_branch", else_branch}});
  };
  CHECK(exact(p, run(pairs, f, g)) == kPairs);
  CHECK(exact(p, run(pairs, f, f)) == kAll);
  CHECK(exact(p, run(all, reduce, g)) == kAll);
  Herbrand agreed(p.ir);
  PairCollector collector;
  for (std::uint64_t session = 0; session < 30; ++session) CHECK(agreed.session(session, 1, collector));
  run(pairs, reduce, f);
  Herbrand parted(p.ir);
  int ends = 0;
  for (std::uint64_t session = 0; session < 30; ++session)
    ends += parted.session(session, 1, collector) ? 0 : 1;
  CHECK(ends > 5);
  CHECK(ends < 25);
  CHECK(collector.divergences() == ends);
}

TEST_CASE("herbrand: who skips a load of a stream stays behind") {
  Program p(4);
  const TensorId pairs = p.variable("pairs", p.groups(1, 2), kCondition);
  const StreamId stream = p.ir.add_stream("s", kVector, true, StreamMode::kBroadcast);
  const auto load = [&] { return p.emit("host_load", {}, {{"h2d_stream", stream}}); };
  const GraphId loads = graph_of(p, load), nothing = p.ir.create_graph("nothing");
  const OpId before = load();
  p.emit("conditional", {pairs}, {{"then_branch", loads}, {"else_branch", nothing}});
  CHECK(exact(p, before, 2) == kAll);  // each run starts afresh
  CHECK(exact(p, load(), 2) == kPairs);
}

TEST_CASE("herbrand: replicas load the row of their group, from where they stand") {
  Program p(4);
  const TensorId pairs = p.variable("pairs", p.groups(1, 2), kCondition);
  const ReplicaGrouping groups = p.groups(2, 2);
  const StreamId stream = p.ir.add_stream("s", kVector, true, StreamMode::kGroups, {}, groups);
  const auto load = [&] { return p.emit("host_load", {}, {{"h2d_stream", stream}}); };
  const GraphId loads = graph_of(p, load), nothing = p.ir.create_graph("nothing");
  const OpId before = load();
  p.emit("conditional", {pairs}, {{"then_branch", loads}, {"else_branch", nothing}});
  CHECK(exact(p, before, 2) == "{0,2}{1,3}");
  CHECK(exact(p, load(), 2) == kEach);
}

TEST_CASE("herbrand: variables and remote memory are kept between runs") {
  Program p(4);
  p.sequence = SequenceMode::kOrdered;
  const TensorId a = p.variable("a"), b = p.variable("b", p.groups(1, 2)),
                 c = p.variable("c", p.groups(2, 2));
  const RemoteId buffer = p.ir.add_remote_buffer(kVector, 1);
  const Attrs entry{{"remote_buffer", buffer}, {"entry", std::int64_t{0}}};
  const OpId read_remote = p.emit("remote_load", {}, entry);
  const OpId read = p.emit("relu", {a});
  p("copy_var_update_", {a, b});
  p.emit("remote_store", {c}, entry);
  CHECK(exact(p, read, 1) == kAll);
  CHECK(exact(p, read, 2) == kPairs);
  CHECK(exact(p, read_remote, 1) == kAll);
  CHECK(exact(p, read_remote, 2) == "{0,2}{1,3}");
}

TEST_CASE("herbrand: a view shows elements of other memory, and writes them") {
  Program p(4);
  p.sequence = SequenceMode::kOrdered;
  using Ints = std::vector<std::int64_t>;
  const TensorId x = p.load("x", StreamMode::kBroadcast),
                 u = p.load("u", StreamMode::kReplicate, {DType::kFloat32, {2}});
  const auto half = [&](TensorId t, std::int64_t start) {
    return p("slice_", {t}, {}, {{"start", Ints{start}}, {"stop", Ints{start + 2}}, {"step", Ints{1}}});
  };
  p("copy_var_update_", {half(x, 2), u});
  CHECK(exact(p, p.emit("relu", {half(x, 0)})) == kAll);
  CHECK(exact(p, p.emit("relu", {half(x, 1)})) == kEach);
  CHECK(exact(p, p.emit("relu", {x})) == kEach);
  const GraphId f = graph_of(p, [&] {
    const TensorId a = p.input("a");
    p("copy_var_update_", {half(a, 2), half(a, 0)});
  });
  const OpId call = p.emit("call", {p("reshape_", {x}, {}, {{"shape", Ints{4}}})}, {{"graph", f}});
  GraphEditor(p.ir).mark_modified(call, 0);
  CHECK(exact(p, p.emit("relu", {x})) == kAll);
}

TEST_CASE("herbrand: an offset chooses the entry") {
  Program p(4);
  p.sequence = SequenceMode::kOrdered;
  const RemoteId buffer = p.ir.add_remote_buffer(kVector, 2);
  const TensorId w = p.variable("w"), offset = p.load("offset", StreamMode::kReplicate, {DType::kInt32, {}});
  const Attrs any{{"remote_buffer", buffer}};
  const Attrs first{{"remote_buffer", buffer}, {"entry", std::int64_t{0}}};
  const OpId before = p.emit("remote_load", {}, first), gathered = p.emit("remote_load", {offset}, any);
  p.emit("remote_store", {w, offset}, any);
  const OpId after = p.emit("remote_load", {}, first);
  p.emit("remote_store", {w}, first);
  const OpId overwritten = p.emit("remote_load", {}, first);
  CHECK(exact(p, before) == kAll);
  CHECK(exact(p, gathered) == kEach);
  CHECK(exact(p, after) == kEach);
  CHECK(exact(p, overwritten) == kAll);
}

}  // namespace
}  // namespace popsr
