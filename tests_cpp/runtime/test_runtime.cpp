// Plans and sessions driven through the C++ core: blocks, fusion, sharing, noise, and the dynamic oracle.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "popsr/base/error.h"
#include "popsr/runtime/check/claims.h"
#include "popsr/runtime/session/session.h"
#include "popsr/transform/graph_editor.h"
#include "popsr/transform/merge.h"
#include "support/program.h"
#include "support/streams.h"

using namespace popsr;
using popsr::test::borrow;
using popsr::test::Program;
using popsr::test::Streams;

namespace {

StreamId store(Program& program, TensorId t, std::string name) {
  const StreamId stream =
      program.ir.add_stream(name, program.ir.tensor(t).type, false, StreamMode::kReplicate);
  program.emit("host_store", {t}, {{"d2h_stream", stream}});
  return stream;
}

/// Runs the program once and returns all of a stream's data.
std::vector<float> result_of(const Program& program, StreamId stream, SessionOptions options,
                             std::int64_t transfers = 1) {
  options.seed_rules = program.seeds;
  Session session(borrow(program), options);
  Streams streams(program.ir, transfers);
  session.run(streams.buffers, {});
  return streams.data[stream];
}

/// Gradients of a product over replicas: x^T dy, reduced. The shape of data-parallel training.
StreamId weight_gradient(Program& p, std::string_view reduce, ReplicaGrouping group,
                         std::string op = "mean") {
  const TensorId x = p.load("x", StreamMode::kReplicate, {DType::kFloat32, {3, 5}});
  const TensorId dy = p.load("dy", StreamMode::kReplicate, {DType::kFloat32, {3, 7}});
  const TensorId dw = p("matmul", {x, dy}, "dw", {{"transpose_lhs", true}});
  const TensorId sum = p(reduce, {dw}, "sum", {{"op", op}, {"group", std::move(group)}});
  return store(p, sum, "out");
}

/// A copy of the product's registry in which the partition rule of one op claims equality everywhere.
std::shared_ptr<const Registry> with_wrong_rule(std::string_view op) {
  auto registry = std::make_shared<Registry>(*default_registry());
  OpDef def = registry->at(op);
  def.replicas.partition = equal_everywhere;
  registry->replace(std::move(def));
  return registry;
}

}  // namespace

TEST_CASE("a value that is equal everywhere is computed and stored once") {
  Program p(64);
  const TensorId w = p.variable("w");
  const TensorId y = p("exp", {w}, "y");
  const TensorId x = p.load("x");
  const StreamId out = store(p, p("add", {x, y}, "z"), "out");
  Session session(borrow(p), {});
  Streams streams(p.ir);
  session.run(streams.buffers, {});
  const SessionStats stats = session.stats();
  CHECK(stats.kernel_calls.at("exp") == 1);
  CHECK(stats.blocks.at("exp") == 1);
  CHECK(stats.blocks.at("add") == 64);
  CHECK(stats.kernel_calls.at("add") == 1);
  CHECK(session.memory().variables == 4 * sizeof(float));
  for (std::size_t i = 0; i < streams.data[out].size(); ++i)
    CHECK(streams.data[out][i] == streams.data[StreamId(0)][i] + 1.0F);
}

TEST_CASE("fused products give the bits of stored ones, in every grouping and form") {
  for (const std::string_view reduce : {"replicated_all_reduce", "replicated_all_reduce_"}) {
    for (const auto& [stride, size] :
         std::vector<std::pair<int, int>>{{1, 8}, {1, 4}, {2, 4}, {4, 2}, {1, 1}}) {
      for (const std::string op : {"mean", "add"}) {
        Program p(8);
        const StreamId out = weight_gradient(p, reduce, p.groups(stride, size), op);
        const std::vector<float> fused = result_of(p, out, {});
        CHECK(fused == result_of(p, out, {.dedup = false}));
        CHECK(fused == result_of(p, out, {.check = true}));  // check stores every product
        CHECK(fused == result_of(p, out, {.num_threads = 1}));
      }
    }
  }
}

TEST_CASE(
    "products of narrow types and other reductions fuse slice by slice, with the noise of stored ones") {
  const TensorType lhs{DType::kBFloat16, {6, 700}}, rhs{DType::kBFloat16, {6, 90}};
  const auto narrow = [](Program& p, std::string name, const TensorType& type) {
    const TensorId wide = p.load(std::move(name), StreamMode::kReplicate, {DType::kFloat32, type.shape});
    return p("cast", {wide}, {}, {{"data_type", DType::kBFloat16}});
  };
  for (const std::string consumer : {"add", "mean", "max", "accumulate_"}) {
    for (const bool stochastic : {false, true}) {
      CAPTURE(consumer);
      Program p(8);
      p.sequence = SequenceMode::kOrdered;
      const TensorId x = narrow(p, "x", lhs), dy = narrow(p, "dy", rhs);
      const TensorId acc = p.variable("acc", {}, {DType::kBFloat16, {700, 90}});
      const TensorId dw = p("matmul", {x, dy}, "dw", {{"transpose_lhs", true}});
      const TensorId fused = consumer == "accumulate_" ? p("accumulate_", {acc, dw}, "out", {{"f", 0.37}})
                                                       : p("replicated_all_reduce", {dw}, "out",
                                                           {{"op", consumer}, {"group", p.groups(1, 4)}});
      const StreamId out = store(p, p("cast", {fused}, {}, {{"data_type", DType::kFloat32}}), "result");
      if (stochastic) p.seeds = SeedRules(SeedRule::kPartition);
      const Session session(borrow(p), {.seed_rules = p.seeds});
      CHECK(session.plan().to_string().find("matmul+") != std::string::npos);
      const std::vector<float> bits = result_of(p, out, {.seed = 5});
      CHECK(bits == result_of(p, out, {.seed = 5, .check = true}));
      CHECK(bits == result_of(p, out, {.seed = 5, .dedup = false}));
      CHECK(bits == result_of(p, out, {.seed = 5, .num_threads = 1}));
    }
  }
}

TEST_CASE("a product of equal operands is computed once, not once for each member of a group") {
  Program p(64);
  const TensorId w = p.variable("w", {}, {DType::kFloat32, {3, 3}});
  store(p, p("replicated_all_reduce", {p("matmul", {w, w}, "square")}, "sum", {{"op", std::string("add")}}),
        "out");
  const auto facts = std::make_shared<const PartitionAnalysis>(p.ir);
  const Session session(borrow(p), {}, facts);
  CHECK(session.plan().to_string().find("matmul+") == std::string::npos);
}

TEST_CASE("a product is not fused into what it reads") {
  Program p(2);
  p.sequence = SequenceMode::kOrdered;
  const TensorId acc = p.variable("acc", {}, {DType::kFloat32, {3, 3}});
  const TensorId x = p.load("x", StreamMode::kReplicate, {DType::kFloat32, {3, 3}});
  p("add_", {acc, x}, "acc1");
  p("accumulate_", {acc, p("matmul", {acc, x}, "product")}, "acc2");
  const StreamId out = store(p, acc, "out");
  CHECK(result_of(p, out, {}) == result_of(p, out, {.check = true}));
}

TEST_CASE("a fused product needs the memory of one replica") {
  Program p(256);
  weight_gradient(p, "replicated_all_reduce", p.groups(1, 256));
  const auto facts = std::make_shared<const PartitionAnalysis>(p.ir);  // of streams that are fed unequal rows
  const Session session(borrow(p), {}, facts);
  const std::size_t inputs = 256 * (3 * 5 + 3 * 7) * sizeof(float);
  CHECK(session.memory().activations < inputs + 4096);
  CHECK(session.plan().to_string().find("matmul+replicated_all_reduce") != std::string::npos);
}

TEST_CASE("a product that somebody else reads is not fused") {
  Program p(4);
  const TensorId x = p.load("x", StreamMode::kReplicate, {DType::kFloat32, {3, 3}});
  const TensorId square = p("matmul", {x, x}, "square");
  const TensorId sum = p("replicated_all_reduce", {square}, "sum", {{"op", std::string("add")}});
  store(p, square, "local");
  const StreamId out = store(p, sum, "out");
  const auto facts = std::make_shared<const PartitionAnalysis>(p.ir);
  const Session session(borrow(p), {}, facts);
  CHECK(session.plan().to_string().find("matmul+") == std::string::npos);
  CHECK(result_of(p, out, {}) == result_of(p, out, {.dedup = false}));
}

TEST_CASE("an accumulated product equals the accumulated stored product") {
  Program p(2);
  p.sequence = SequenceMode::kOrdered;
  const TensorType type{DType::kFloat32, {3, 3}};
  const TensorId acc = p.variable("acc", {}, type);
  const TensorId x = p.load("x", StreamMode::kReplicate, type);
  p("accumulate_", {acc, p("matmul", {x, x}, "square")}, "acc1", {{"f", 0.3}});
  const StreamId out = store(p, acc, "out");
  const Session session(borrow(p), {});
  CHECK(session.plan().to_string().find("matmul+accumulate_") != std::string::npos);
  CHECK(result_of(p, out, {}) == result_of(p, out, {.check = true}));
}

TEST_CASE("products that are accumulated late are fused unless their operands were written in between") {
  for (const bool is_written : {false, true}) {
    Program p(2);
    p.sequence = SequenceMode::kOrdered;
    const TensorType type{DType::kFloat32, {3, 3}};
    const TensorId acc = p.variable("acc", {}, type);
    const TensorId w = p.variable("w", {}, type);
    const TensorId x = p.load("x", StreamMode::kReplicate, type);
    p("copy_var_update_", {w, x}, "w1");
    const TensorId first = p("matmul", {x, w}, "first");
    const TensorId second = p("matmul", {w, x}, "second");
    if (is_written) p("accumulate_", {w, x}, "w2");
    p("accumulate_", {acc, first}, "acc1");
    p("accumulate_", {acc, second}, "acc2");
    const StreamId out = store(p, acc, "out");
    const Session session(borrow(p), {});
    CHECK((session.plan().to_string().find("matmul+accumulate_") == std::string::npos) == is_written);
    CHECK(result_of(p, out, {}) == result_of(p, out, {.check = true}));
    CHECK(result_of(p, out, {}) == result_of(p, out, {.optimise = false}));
  }
}

TEST_CASE("an in-place write whose fact is coarser than its storage is copied to all blocks") {
  Program p(4);
  p.sequence = SequenceMode::kOrdered;
  const TensorId v = p.variable("v", ReplicaGrouping::from_assignment(std::vector<std::int64_t>{0, 1, 0, 1}));
  const TensorId x = p.load("x");
  p("accumulate_", {v, x}, "v1");                                        // per replica
  p("replicated_all_reduce_", {v}, "v2", {{"op", std::string("add")}});  // equal
  const StreamId out = store(p, v, "out");
  const std::vector<float> shared = result_of(p, out, {});
  CHECK(shared == result_of(p, out, {.check = true}));
  CHECK(std::equal(shared.begin(), shared.begin() + 4, shared.begin() + 4));
}

TEST_CASE("loops carry values, swap them, and advance streams") {
  Program p(2);
  const GraphId body = p.ir.create_graph("body");
  p.at = body;
  const TensorId a = p.input("a"), b = p.input("b");
  const TensorId x = p.load("x");
  p.ir.add_output(body, b);
  p.ir.add_output(body, p("add", {a, x}, "sum"));
  p.at = kMainGraph;
  const TensorId zero = p("init", {}, "zero", {{"shape", Shape{4}}, {"dtype", DType::kFloat32}});
  const OpId loop = p.emit("repeat", {zero, zero}, {{"graph", body}, {"count", std::int64_t{4}}});
  const StreamId out = store(p, p.ir.op(loop).outputs[0], "out");
  Session session(borrow(p), {});
  Streams streams(p.ir, 4);
  session.run(streams.buffers, {});
  // (a, b) <- (b, a + x_t): after four steps a = x0 + x2.
  for (std::size_t i = 0; i < 8; ++i)
    CHECK(streams.data[out][i] == streams.data[StreamId(0)][i] + streams.data[StreamId(0)][16 + i]);
  CHECK(result_of(p, out, {}, 4) == result_of(p, out, {.check = true}, 4));
}

TEST_CASE("inputs are passed by value unless marked as modified") {
  for (const bool by_ref : {false, true}) {
    Program p(1);
    p.sequence = SequenceMode::kOrdered;
    const GraphId callee = p.ir.create_graph("callee");
    p.at = callee;
    const TensorId t = p.input("t");
    p("add_", {t, p.constant("c")}, "t1");
    p("exp_", {t}, "t2");
    p.at = kMainGraph;
    const TensorId v = p.variable("v");
    const OpId call = p.emit("call", {v}, {{"graph", callee}});
    if (by_ref) GraphEditor(p.ir).mark_modified(call, 0);
    const StreamId out = store(p, v, "out");
    CHECK(result_of(p, out, {})[0] == (by_ref ? 1.0F : 0.0F));
  }
}

TEST_CASE("stochastic rounding: same bits shared or not, equal inside seed blocks, different across") {
  const TensorType wide{DType::kFloat32, {64}}, narrow{DType::kBFloat16, {64}};
  Program p(4);
  const TensorId x = p.load("x", StreamMode::kBroadcast, wide);
  const TensorId index = p.load("i", StreamMode::kReplicate, wide);
  const auto half = [&](TensorId t) { return p("cast", {t}, {}, {{"data_type", DType::kBFloat16}}); };
  const TensorId same = half(x);
  const TensorId zeros = p("mul", {index, p.constant("zero", wide)}, "zeros");
  const TensorId apart = half(p("add", {x, zeros}, "x_again"));  // equal values, not proved equal
  const auto widen = [&](TensorId t) { return p("cast", {t}, {}, {{"data_type", DType::kFloat32}}); };
  const StreamId same_out = store(p, widen(same), "same"), apart_out = store(p, widen(apart), "apart");
  p.seeds = SeedRules(SeedRule::kPartition);
  const std::vector<float> equal = result_of(p, same_out, {.seed = 3}),
                           split = result_of(p, apart_out, {.seed = 3});
  for (int r = 1; r < 4; ++r) CHECK(std::equal(equal.begin(), equal.begin() + 64, equal.begin() + r * 64));
  CHECK_FALSE(std::equal(split.begin(), split.begin() + 64, split.begin() + 64));
  CHECK(split == result_of(p, apart_out, {.seed = 3, .dedup = false}));
  CHECK(split == result_of(p, apart_out, {.seed = 3, .check = true}));
  CHECK(split != result_of(p, apart_out, {.seed = 4}));
  p.seeds = SeedRules(SeedRule::kIdentical);
  const std::vector<float> identical = result_of(p, apart_out, {.seed = 3});
  CHECK(std::equal(identical.begin(), identical.begin() + 64, identical.begin() + 64));
}

TEST_CASE("the dynamic oracle catches a wrong rule in every family") {
  const auto run = [](const Program& p) {
    return test::error_of<ReplicaError>([&] {
      Session session(borrow(p), {.check = true});
      Streams streams(p.ir);
      session.run(streams.buffers, {});
    });
  };
  for (const std::string_view op : {"negate", "relu", "sum", "transpose", "softmax", "cast", "matmul"}) {
    CAPTURE(op);
    const auto build = [&](std::shared_ptr<const Registry> registry) {
      auto p = std::make_unique<Program>(2, std::move(registry));
      const TensorId x = p->load("x", StreamMode::kReplicate, {DType::kFloat32, {4, 4}});
      test::Attrs attrs;
      if (op == "softmax") attrs = {{"axis", std::int64_t{1}}};
      if (op == "cast") attrs = {{"data_type", DType::kFloat64}};
      (*p)(op, op == "matmul" ? std::vector<TensorId>{x, x} : std::vector<TensorId>{x}, "y", attrs);
      return p;
    };
    CHECK(run(*build(default_registry())) == "");
    const std::string message = run(*build(with_wrong_rule(op)));
    CHECK(message.find("check: 'y' differs between replicas 0 and 1 after " + std::string(op)) == 0);
  }
  for (const std::string_view op :
       {"replicated_all_reduce", "replicated_all_gather", "replicated_reduce_scatter"}) {
    CAPTURE(op);
    Program p(4, with_wrong_rule(op));
    p(op, {p.load("x")}, "y", {{"group", p.groups(1, 2)}});
    CHECK(run(p).find("check: 'y' differs") == 0);
  }
  Program p(2, with_wrong_rule("accumulate_"));
  p("accumulate_", {p.variable("v"), p.load("x")}, "v1");
  CHECK(run(p).find("check: 'v' differs") != std::string::npos);
}

TEST_CASE("the dynamic oracle says where, and what the claim was derived from") {
  Program p(2, with_wrong_rule("relu"));
  const auto at = [&p](int line) { p.location = p.ir.locations().intern("model.py", line); };
  at(1);
  const TensorId x = p.load("x");
  const GraphId inner = p.at = p.ir.create_graph("inner");
  at(2);
  p.ir.add_output(inner, p("tanh", {p("relu", {p.input("a")}, "r")}));
  const GraphId outer = p.at = p.ir.create_graph("outer");
  at(3);
  p.ir.add_output(outer, p("call", {p.input("b")}, "c", {{"graph", inner}}));
  p.at = kMainGraph;
  at(4);
  p("repeat", {x}, "y", {{"graph", outer}, {"count", std::int64_t{3}}});
  const std::string message = test::error_of<ReplicaError>([&] {
    Session session(borrow(p), {.check = 1});
    Streams streams(p.ir);
    session.run(streams.buffers, {});
  });
  CHECK(
      message.find(
          "check: 'inner_subgraph(0)/r' differs between replicas 0 and 1 after relu at model.py:2 in repeat "
          "of graph 'outer_subgraph(1)' at model.py:4, iteration 0, call of graph 'inner_subgraph(0)' at "
          "model.py:3, got bits") == 0);
  CHECK(message.find("expected equal values in {0,1}, derived from 'inner_subgraph(0)/r' = "
                     "relu('inner_subgraph(0)/a'): 'inner_subgraph(0)/a' equal nowhere") !=
        std::string::npos);
}

TEST_CASE("the dynamic oracle names branches, and what they were to leave behind") {
  for (const std::string_view wrong : {"relu", "copy_var_update_"}) {
    Program p(4, with_wrong_rule(wrong));
    p.sequence = SequenceMode::kOrdered;
    const auto at = [&p](int line) { p.location = p.ir.locations().intern("model.py", line); };
    at(1);
    const TensorId x = p.load("x"), v = p.variable("v");
    const TensorId c = p.constant("c", {DType::kBool, {}});
    const GraphId idle = p.at = p.ir.create_graph("idle");
    p.input("a");
    p.input("total");
    const GraphId busy = p.at = p.ir.create_graph("busy");
    const TensorId a = p.input("a"), total = p.input("total");
    at(2);
    if (wrong == "relu") {
      p("relu", {a}, "r");
    } else {
      p("copy_var_update_", {total, a});
    }
    p.at = kMainGraph;
    at(3);
    const OpId op = p.emit("conditional", {c, x, v, x, v}, {{"then_branch", idle}, {"else_branch", busy}});
    GraphEditor(p.ir).mark_modified(op, 4);
    const std::string message = test::error_of<ReplicaError>([&] {
      Session session(borrow(p), {.check = 1});
      Streams streams(p.ir);
      session.run(streams.buffers, {});
    });
    CAPTURE(message);
    CHECK(message.find(" in conditional of graph 'busy_subgraph(1)' at model.py:3, got bits") !=
          std::string::npos);
    CHECK(message.find("after " + std::string(wrong) + " at model.py:2") != std::string::npos);
  }
}

TEST_CASE("the dynamic oracle names the part of a merged op") {
  Program p(4, with_wrong_rule("replicated_all_reduce"));
  const TensorId x = p.load("x"), y = p.load("y");
  p.location = p.ir.locations().intern("model.py", 3);
  p.all_reduce(x, p.groups(1, 2), "a");
  p.location = p.ir.locations().intern("model.py", 4);
  p.all_reduce(y, p.groups(1, 2), "b");
  REQUIRE(merge_collectives(p.ir) == 1);
  const std::string message = test::error_of<ReplicaError>([&] {
    Session session(borrow(p), {.check = 1});
    Streams streams(p.ir);
    std::ranges::fill(streams.data[StreamId(0)], 0.0F);  // only y differs
    session.run(streams.buffers, {});
  });
  CHECK(message.find("check: 'b' differs between replicas 0 and 2 after replicated_all_reduce at model.py:4, "
                     "got bits") == 0);
  CHECK(message.find("derived from 'b' = replicated_all_reduce('y'), groups {0,1}{2,3}: 'y' equal nowhere") !=
        std::string::npos);
}

TEST_CASE("a share of the claims is compared: the same ones every time, other ones in later runs") {
  for (const double share : {0.0, 0.01, 0.25, 1.0}) {
    Sampler a(share), b(share);
    int yes = 0;
    for (int i = 0; i < 10000; ++i) {
      const bool answer = a.next();
      CHECK(answer == b.next());
      yes += answer ? 1 : 0;
    }
    CHECK(yes >= 10000 * share * 0.8);
    CHECK(yes <= 10000 * share * 1.2);
  }
  // The wrong one of eleven claims is looked at in some run, not in the first, and always in the same.
  Program p(2, with_wrong_rule("relu"));
  TensorId t = p("relu", {p.load("x")});
  for (int i = 0; i < 8; ++i) t = p("tanh", {t});
  const auto runs_until_caught = [&p] {
    Session session(borrow(p), {.check = 0.02});
    Streams streams(p.ir);
    int runs = 1;
    while (runs < 1000 && test::error_of<ReplicaError>([&] { session.run(streams.buffers, {}); }).empty()) {
      ++runs;
    }
    return runs;
  };
  const int runs = runs_until_caught();
  CHECK(runs > 1);
  CHECK(runs < 1000);
  CHECK(runs == runs_until_caught());
}

TEST_CASE("a stream that is read more often than there is data is refused before anything runs") {
  Program p(1);
  const TensorId v = p.variable("v");
  const TensorId a = p.load("a");
  p.sequence = SequenceMode::kOrdered;
  p("accumulate_", {v, a}, "v1");
  const StreamId stream(0);
  for (int i = 0; i < 2; ++i) p("host_load", {}, "again", {{"h2d_stream", stream}});
  Session session(borrow(p), {});
  Streams two(p.ir, 2);
  CHECK(test::error_of<ShapeError>([&] { session.run(two.buffers, {}); }).find("run: stream 'a_stream'") ==
        0);
  std::vector<float> value(4, -1.0F);
  session.read_variable(v, HostRows::kGroups, reinterpret_cast<std::byte*>(value.data()));
  CHECK(value == std::vector<float>(4, 0.0F));
  Streams one(p.ir, 1);  // three reads wrap exactly
  session.run(one.buffers, {});
}
