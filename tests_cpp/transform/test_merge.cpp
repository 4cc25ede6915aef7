// Merged exchanges: what becomes one op, what must not, and that nothing else changes.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <string>
#include <vector>

#include "popsr/analysis/partition_analysis.h"
#include "popsr/base/error.h"
#include "popsr/effects/remote_access.h"
#include "popsr/effects/verify.h"
#include "popsr/ir/ir.h"
#include "popsr/ir/print.h"
#include "popsr/transform/autodiff.h"
#include "popsr/transform/graph_editor.h"
#include "popsr/transform/merge.h"
#include "support/program.h"

namespace popsr {
namespace {

using test::Attrs;
using test::error_of;
using test::Expect;
using test::facts_of;
using test::kVector;
using test::Program;
using Names = std::vector<std::string>;

/// Names of the ops of a schedule; merged ones with their number of parts: "multi_exchange 2".
Names schedule(const Ir& ir, GraphId graph = kMainGraph) {
  Names names;
  for (const OpId id : ir.graph(graph).ops) {
    const Op& op = ir.op(id);
    names.emplace_back(op.def->name);
    if (!op.schedule.parts.empty()) names.back() += fmt::format(" {}", op.schedule.parts.size());
  }
  return names;
}

Attrs group(const Program& p, std::int64_t stride, std::int64_t size, const std::string& op = "add") {
  return {{"group", p.groups(stride, size)}, {"op", op}};
}

TEST_CASE("merge: a write in place stays behind the reads that nothing orders before it") {
  Program p(4);
  const TensorId x = p.load("x");
  p("replicated_all_reduce", {x}, "a");
  p("replicated_all_reduce_", {x}, "in_place");
  CHECK(error_of<GraphError>([&] { verify_order(p.ir); }).find("Inplacing ambiguity") == 0);
  const std::uint64_t epoch = p.ir.epoch();
  for (const auto transform : {merge_collectives, merge_exchange}) CHECK(transform(p.ir) == 0);
  CHECK(p.ir.epoch() == epoch);
}

TEST_CASE("merge: what depends, differs or is ordered stays apart") {
  Program p(4);
  const TensorId x = p.load("x"), y = p.load("y");
  const TensorId a = p("replicated_all_reduce", {x}, "a", group(p, 1, 2));
  p("replicated_all_reduce", {y}, "b", group(p, 1, 2));
  p("replicated_all_reduce", {x}, "other_group", group(p, 2, 2));
  p("replicated_all_reduce", {x}, "other_op", group(p, 1, 2, "max"));
  p("replicated_all_reduce", {p("tanh", {a})}, "depends", group(p, 1, 2));
  CHECK(merge_collectives(p.ir) == 1);
  CHECK(schedule(p.ir) == Names{"host_load", "host_load", "multi_replicated_all_reduce 2",
                                "replicated_all_reduce", "replicated_all_reduce", "tanh",
                                "replicated_all_reduce"});
  const std::uint64_t epoch = p.ir.epoch();
  CHECK(merge_collectives(p.ir) == 0);
  CHECK(p.ir.epoch() == epoch);  // facts stay fresh
}

TEST_CASE("merge: the group of all replicas is one, however it is written") {
  Program p(4);
  const TensorId x = p.load("x");
  p("replicated_all_reduce", {x}, "a");
  p("replicated_all_reduce", {x}, "b", group(p, 1, 4));
  p("replicated_all_gather", {x}, "c", {{"axis", std::int64_t{0}}});
  p("replicated_all_gather", {x}, "d", {{"output_shape", std::string("new_axis")}});
  p("replicated_reduce_scatter", {x}, "e");
  p("replicated_reduce_scatter", {x}, "f");
  CHECK(merge_collectives(p.ir) == 3);
  CHECK(schedule(p.ir) == Names{"host_load", "multi_replicated_all_reduce 2", "multi_replicated_all_gather 2",
                                "multi_replicated_reduce_scatter 2"});
}

TEST_CASE("merge: ops move behind what they follow") {
  Program p(4);
  const TensorId v = p.variable("v"), w = p.variable("w");
  const TensorId x = p.load("x"), y = p.load("y");
  p("add_", {v, p.all_reduce(x, p.groups(1, 4), "gx")});
  p("add_", {w, p.all_reduce(p("tanh", {y}), p.groups(1, 4), "gy")});
  CHECK(merge_collectives(p.ir) == 1);
  CHECK(schedule(p.ir) ==
        Names{"host_load", "host_load", "tanh", "multi_replicated_all_reduce 2", "add_", "add_"});
  verify(p.ir);
  const PartitionAnalysis facts(p.ir);
  CHECK(facts_of(p.ir, facts, {{"v", "{0,1,2,3}"}, {"w", "{0,1,2,3}"}}).at("v") == "{0,1,2,3}");
  const auto values = facts.values(v, ContextId(0));
  CHECK(values.back().first == 4);
}

TEST_CASE("merge: two groups that would wait for each other") {
  Program p(4);
  const TensorId x = p.load("x");
  const Attrs add = group(p, 1, 4), max = group(p, 1, 4, "max");
  const TensorId a1 = p("replicated_all_reduce", {x}, "a1", add);
  const TensorId b1 = p("replicated_all_reduce", {x}, "b1", max);
  p("replicated_all_reduce", {b1}, "a2", add);
  p("replicated_all_reduce", {a1}, "b2", max);
  CHECK(merge_collectives(p.ir) == 1);
  CHECK(schedule(p.ir) == Names{"host_load", "replicated_all_reduce", "multi_replicated_all_reduce 2",
                                "replicated_all_reduce"});
}

TEST_CASE("merge: explicit order is kept") {
  Program p(4);
  p.sequence = SequenceMode::kOrdered;
  const TensorId x = p.load("x"), y = p.load("y");
  p("replicated_all_reduce", {x}, "a");
  p("replicated_all_reduce", {y}, "b");
  p("tanh", {x}, "between");
  p("replicated_all_reduce", {y}, "c");
  CHECK(merge_collectives(p.ir) == 1);
  CHECK(merge_exchange(p.ir) == 1);
  CHECK(schedule(p.ir) ==
        Names{"multi_exchange 2", "multi_replicated_all_reduce 2", "tanh", "replicated_all_reduce"});
  const Graph& graph = p.ir.graph(kMainGraph);
  for (std::uint32_t at = 0; at < graph.ops.size(); ++at)
    CHECK(p.ir.op(graph.ops[at]).schedule.position == at);
  // The record goes on: what is emitted next follows the last op.
  p("tanh", {x}, "next");
  CHECK(p.ir.op(graph.ops[4]).schedule.after == std::vector<OpId>{graph.ops[3]});
}

TEST_CASE("merge: in-place reductions keep what they write") {
  Program p(4);
  p.sequence = SequenceMode::kOrdered;
  const TensorId v = p.variable("v", p.groups(1, 2)), w = p.variable("w", p.groups(1, 1));
  p("replicated_all_reduce_", {v}, "rv", group(p, 2, 2));
  p("replicated_all_reduce_", {w}, "rw", group(p, 2, 2));
  p("replicated_all_reduce", {p.variable("u")}, "ru", group(p, 2, 2));
  p("replicated_all_reduce_", {v}, "again", group(p, 2, 2));  // reads what the first wrote
  CHECK(merge_collectives(p.ir) == 2);
  CHECK(schedule(p.ir) == Names{"multi_replicated_all_reduce 3", "replicated_all_reduce_"});
  const PartitionAnalysis facts(p.ir);
  const auto values = facts.values(v, ContextId(0));
  CHECK(values.size() == 3);
  CHECK(facts_of(p.ir, facts, {{"v", ""}, {"w", ""}, {"ru", ""}}) ==
        Expect{{"v", "{0,1,2,3}"}, {"w", "{0,2}{1,3}"}, {"ru", "{0,1,2,3}"}});
}

TEST_CASE("merge: parts keep location, name and noise index; the print shows them") {
  Program p(4);
  const TensorType narrow{DType::kBFloat16, {4}};
  const TensorId x = p.load("x", StreamMode::kReplicate, narrow),
                 y = p.load("y", StreamMode::kReplicate, narrow);
  p.location = p.ir.locations().intern("model.py", 7);
  p("replicated_all_reduce", {x}, "a");
  p.location = p.ir.locations().intern("model.py", 9);
  const TensorId b = p("replicated_all_reduce", {y}, "b");
  merge_collectives(p.ir);
  const Op& merged = p.ir.op(p.ir.graph(kMainGraph).ops.back());
  const Op& part = p.ir.op(merged.schedule.parts.at(1));
  CHECK(p.ir.locations().to_string(merged.origin.location) == "model.py:7");
  CHECK(p.ir.locations().to_string(p.ir.op(p.ir.tensor(b).uses.producer).origin.location) == "model.py:9");
  CHECK(part.noise.index == 1);
  CHECK(part.schedule.part_of == merged.id);
  CHECK(print_graph(p.ir, kMainGraph).find("    | %b bf16[4] = replicated_all_reduce(%y)  # model.py:9") !=
        std::string::npos);
}

TEST_CASE("merge: a tensor that is unequal spoils no other (U6, P6, multi exchange)") {
  Program p(4);
  const TensorId equal = p.variable("equal"), own = p.load("own");
  p("replicated_reduce_scatter", {equal}, "s1");
  p("replicated_reduce_scatter", {own}, "s2");
  p("replicated_all_gather", {own}, "g1");
  p("replicated_all_gather", {p.load("own2")}, "g2");
  p.all_reduce(equal, p.groups(1, 2), "r1");
  p.all_reduce(own, p.groups(1, 2), "r2");
  p.load("mask", StreamMode::kBroadcast);
  const Expect expect{{"s1", "{0}{1}{2}{3}"},  {"s2", "{0}{1}{2}{3}"}, {"g1", "{0,1,2,3}"},
                      {"g2", "{0,1,2,3}"},     {"r1", "{0,1,2,3}"},    {"r2", "{0,1}{2,3}"},
                      {"own", "{0}{1}{2}{3}"}, {"mask", "{0,1,2,3}"}};
  CHECK(merge_collectives(p.ir) == 3);
  CHECK(merge_exchange(p.ir) == 2);
  const PartitionAnalysis facts(p.ir);
  CHECK(facts_of(p.ir, facts, expect) == expect);
}

TEST_CASE("merge: each part rounds with its own seeds") {
  Program p(4);
  const TensorType narrow{DType::kBFloat16, {4}};
  const TensorId x = p.load("x", StreamMode::kReplicate, narrow);
  const TensorId w = p.variable("w", {}, narrow);
  const TensorId a = p("replicated_all_reduce", {x}, "a", group(p, 1, 2));
  const TensorId b = p("replicated_all_reduce", {w}, "b", group(p, 1, 2));
  merge_collectives(p.ir);
  const SeedRules rules(SeedRule::kPartition);
  rules.verify(p.ir, true);
  const PartitionAnalysis facts(p.ir, rules);
  const auto seeds = [&](TensorId t) {
    return p.ir.partitions().to_string(facts.seeds(p.ir.tensor(t).uses.producer));
  };
  CHECK(seeds(a) == "{0,1}{2,3}");
  CHECK(seeds(b) == "{0,1,2,3}");
}

TEST_CASE("merge: streams and remote entries keep their order") {
  Program p(2);
  const StreamId stream = p.ir.add_stream("s", kVector, true, StreamMode::kReplicate);
  const RemoteId buffer = p.ir.add_remote_buffer(kVector, 3);
  const auto load = [&](const char* name) { return p("host_load", {}, name, {{"h2d_stream", stream}}); };
  const auto entry = [&](std::int64_t e) { return Attrs{{"remote_buffer", buffer}, {"entry", e}}; };
  const TensorId first = load("first"), second = load("second");  // the same stream: in order
  p.emit("remote_store", {first}, entry(0));
  p.emit("remote_store", {second}, entry(1));
  p("remote_load", {}, "old", entry(2));
  p("remote_load", {}, "stored", entry(0));
  p.emit("remote_store", {first}, entry(0));
  merge_exchange(p.ir);
  // "old" joins the first load; both stores wait for their values.
  CHECK(schedule(p.ir) == Names{"multi_exchange 2", "multi_exchange 2", "multi_exchange 2", "remote_store"});
  const Op& stores = p.ir.op(p.ir.graph(kMainGraph).ops[1]);
  CHECK(stores.schedule.parts.size() == 2);
  CHECK(all_outputs(p.ir, stores).size() >= 1);
}

TEST_CASE("merge: graphs that are called, and prints, are not passed") {
  Program p(2);
  const TensorId x = p.load("x");
  const RemoteId buffer = p.ir.add_remote_buffer(kVector, 1);
  const GraphId graph = p.ir.create_graph("body");
  p.at = graph;
  const TensorId t = p.input("t");
  p.emit("remote_store", {t}, {{"remote_buffer", buffer}, {"entry", std::int64_t{0}}});
  p("replicated_all_reduce", {t}, "a");
  p("replicated_all_reduce", {t}, "b");
  p.at = kMainGraph;
  const Attrs entry{{"remote_buffer", buffer}, {"entry", std::int64_t{0}}};
  p("remote_load", {}, "before", entry);
  p.emit("call", {x}, {{"graph", graph}});
  p("remote_load", {}, "after", entry);
  CHECK(merge_collectives(p.ir) == 1);
  CHECK(schedule(p.ir, graph) == Names{"remote_store", "multi_replicated_all_reduce 2"});
  CHECK(merge_exchange(p.ir) == 1);  // the first two loads
  CHECK(schedule(p.ir) == Names{"multi_exchange 2", "call", "remote_load"});
}

TEST_CASE("merge: later ops join what is merged") {
  Program p(2);
  const TensorId x = p.load("x");
  p("replicated_all_reduce", {x}, "a");
  p("replicated_all_reduce", {x}, "b");
  merge_collectives(p.ir);
  const OpId before = p.ir.graph(kMainGraph).ops.back();
  const TensorId c = p("replicated_all_reduce", {x}, "c");
  CHECK(merge_collectives(p.ir) == 1);
  CHECK(schedule(p.ir) == Names{"host_load", "multi_replicated_all_reduce 3"});
  CHECK(p.ir.op(before).schedule.parts.empty());
  CHECK(p.ir.op(p.ir.tensor(c).uses.producer).schedule.part_of == p.ir.graph(kMainGraph).ops.back());
  CHECK(single_ops(p.ir, kMainGraph).size() == 4);
}

TEST_CASE("merge: merged gathers have the gradients of the gathers") {
  const auto gradient = [](bool merged) {
    Program p(4);
    const GraphId forward = p.ir.create_graph("forward");
    p.at = forward;
    const TensorId x = p.input("x"), y = p.input("y");
    p.ir.add_output(forward, p("replicated_all_gather", {x}, "gx"));
    p.ir.add_output(forward, p("replicated_all_gather", {y}, "gy"));
    p.at = kMainGraph;
    if (merged) CHECK(merge_collectives(p.ir) == 1);
    const auto grads = autodiff(p.ir, forward, {});
    return print_graph(p.ir, grads.at(forward).graph);
  };
  CHECK(gradient(true) == gradient(false));
}

TEST_CASE("merge: schedules that break an order are refused") {
  Program p(2);
  const TensorId x = p.load("x");
  const TensorId a = p("replicated_all_reduce", {x}, "a");
  p("replicated_all_reduce", {a}, "b");
  const std::vector<OpId> ops = p.ir.graph(kMainGraph).ops;
  const auto refused = [&](std::vector<ScheduleSlot> slots) {
    const std::uint64_t epoch = p.ir.epoch();
    const std::string text =
        error_of<InternalError>([&] { GraphEditor(p.ir).replace_schedule(kMainGraph, 0, slots); });
    return !text.empty() && p.ir.epoch() == epoch && p.ir.graph(kMainGraph).ops == ops;
  };
  CHECK(refused({{{ops[1]}}, {{ops[0]}}, {{ops[2]}}}));                             // before its input
  CHECK(refused({{{ops[0]}}, {{ops[1], ops[2]}, "multi_replicated_all_reduce"}}));  // of each other
  CHECK(refused({{{ops[0]}}, {{ops[1]}}}));                                         // one is missing
  CHECK(refused({{{ops[0]}}, {{ops[1]}}, {{ops[1]}}}));                             // one twice
  CHECK(refused({{{ops[0]}}, {{ops[1], ops[2]}}}));                                 // no definition
  CHECK(error_of<GraphError>([&] {
          p.emit("multi_exchange", {x});
        }).starts_with("multi_exchange: made by transforms only"));
}

}  // namespace
}  // namespace popsr
