// Branches of a conditional that compute the same: the condition does not matter, though it differs.
#include <doctest/doctest.h>

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "analysis/names.h"
#include "popsr/analysis/partition_analysis.h"
#include "popsr/effects/verify.h"
#include "popsr/transform/graph_editor.h"
#include "support/program.h"

namespace popsr {
namespace {

using test::Attrs;
using test::kAll;
using test::kCondition;
using test::kEach;
using test::kEqual;
using test::kPairs;
using test::kUnequal;
using test::kVector;
using test::Program;

/// Four replicas that differ in a condition; branches of (x, y, m, c), where x and y are equal everywhere.
struct Branches : Program {
  Branches() : Program(4) {
    sequence = SequenceMode::kOrdered;
    stream = ir.add_stream("s", kVector, true, kEqual);
    buffer = ir.add_remote_buffer(kVector, 2);
    condition = load("c", kUnequal, kCondition);
  }

  using Body = std::function<TensorId(Branches&)>;
  GraphId graph(const Body& body) {
    const GraphId outer = std::exchange(at, ir.create_graph("f"));
    x = input("x"), y = input("y"), m = input("m"), c = input("c", kCondition);
    ir.add_output(at, body(*this));
    return std::exchange(at, outer);
  }
  OpId conditional(const std::vector<TensorId>& operands, GraphId then_branch, GraphId else_branch) {
    std::vector<TensorId> inputs{condition};
    for (int branch = 0; branch < 2; ++branch) {
      inputs.insert(inputs.end(), operands.begin(), operands.end());
      inputs.push_back(condition);
    }
    return emit("conditional", inputs, {{"then_branch", then_branch}, {"else_branch", else_branch}});
  }
  TensorId constant_of(std::byte first) {
    std::vector<std::byte> bytes(16);
    bytes[3] = first;
    return ir.add_constant(at, "constant", kVector, std::make_shared<const HostBytes>(std::move(bytes)));
  }
  TensorId next() { return (*this)("host_load", {}, {}, {{"h2d_stream", stream}}); }
  Attrs entry() const { return {{"remote_buffer", buffer}, {"entry", std::int64_t{0}}}; }
  TensorId load_entry() { return (*this)("remote_load", {}, {}, entry()); }
  TensorId store(TensorId t) {
    emit("remote_store", {t}, entry());
    return t;
  }
  TensorId run(std::string_view op, const Body& body, Attrs attrs = {}) {
    const std::vector<TensorId> operands{x, y, m, c};
    attrs.emplace_back("graph", graph(body));
    x = operands[0], y = operands[1], m = operands[2], c = operands[3];
    return (*this)(op, operands, {}, std::move(attrs));
  }

  StreamId stream;
  RemoteId buffer;
  TensorId condition = kNone, x = kNone, y = kNone, m = kNone, c = kNone;
};

TensorId relu_of_x(Branches& p) { return p("relu", {p.x}); }
TensorId scaled(Branches& p, double factor) {
  return p("accumulator_scale_", {p("relu", {p.x})}, {}, {{"f", factor}});
}

struct Row {
  std::string_view what;
  Branches::Body then_branch, else_branch;
  bool equal;
};

const Row kRows[] = {
    {"one op", relu_of_x, relu_of_x, true},
    {"another op", relu_of_x, [](Branches& p) { return p("tanh", {p.x}); }, false},
    {"another operand", relu_of_x, [](Branches& p) { return p("relu", {p.y}); }, false},
    {"operands in another order",
     [](Branches& p) {
       return p("add", {p.x, p.y});
     },
     [](Branches& p) {
       return p("add", {p.y, p.x});
     },
     false},
    {"a chain, with an op that does not count",
     [](Branches& p) {
       return p("mul", {p("relu", {p.x}), p.y});
     },
     [](Branches& p) {
       p("tanh", {p.y});
       return p("mul", {p("relu", {p.x}), p.y});
     },
     true},
    {"one attribute", [](Branches& p) { return scaled(p, 0.5); }, [](Branches& p) { return scaled(p, 0.5); },
     true},
    {"other attributes", [](Branches& p) { return scaled(p, 0.5); },
     [](Branches& p) { return scaled(p, 0.25); }, false},
    {"constants of one content",
     [](Branches& p) {
       return p("add", {p.x, p.constant_of(std::byte{1})});
     },
     [](Branches& p) {
       return p("add", {p.x, p.constant_of(std::byte{1})});
     },
     true},
    {"constants of other content",
     [](Branches& p) {
       return p("add", {p.x, p.constant_of(std::byte{1})});
     },
     [](Branches& p) {
       return p("add", {p.x, p.constant_of(std::byte{2})});
     },
     false},
    {"a place in a stream", [](Branches& p) { return p.next(); }, [](Branches& p) { return p.next(); }, true},
    {"another place in a stream", [](Branches& p) { return p.next(); },
     [](Branches& p) {
       p.next();
       return p.next();
     },
     false},
    {"remote memory", [](Branches& p) { return p.load_entry(); }, [](Branches& p) { return p.load_entry(); },
     true},
    {"remote memory that one branch stores", [](Branches& p) { return p.load_entry(); },
     [](Branches& p) {
       p.store(p.x);
       return p.load_entry();
     },
     false},
    {"remote memory that both store",
     [](Branches& p) {
       p.store(p.x);
       return p.load_entry();
     },
     [](Branches& p) {
       p.store(p("relu", {p.y}));
       p.store(p.x);
       return p.load_entry();
     },
     true},
    {"a view",
     [](Branches& p) {
       return p("reshape_", {p.x}, {}, {{"shape", Shape{4}}});
     },
     [](Branches& p) {
       return p("reshape_", {p.x}, {}, {{"shape", Shape{4}}});
     },
     true},
    {"memory that is written",
     [](Branches& p) {
       return p("add_", {p.m, p.x});
     },
     [](Branches& p) {
       return p("add_", {p.m, p.x});
     },
     true},
    {"memory that is written otherwise",
     [](Branches& p) {
       return p("add_", {p.m, p.x});
     },
     [](Branches& p) {
       return p("add_", {p.m, p.y});
     },
     false},
    {"a call", [](Branches& p) { return p.run("call", relu_of_x); }, relu_of_x, true},
    {"a loop written out",
     [](Branches& p) {
       return p.run("repeat", relu_of_x, {{"count", std::int64_t{3}}});
     },
     [](Branches& p) { return p("relu", {p("relu", {p("relu", {p.x})})}); }, true},
    {"a loop of another count",
     [](Branches& p) {
       return p.run("repeat", relu_of_x, {{"count", std::int64_t{2}}});
     },
     [](Branches& p) {
       return p.run("repeat", relu_of_x, {{"count", std::int64_t{3}}});
     },
     false},
    {"long loops, which are not followed",
     [](Branches& p) {
       return p.run("repeat", relu_of_x, {{"count", std::int64_t{9}}});
     },
     [](Branches& p) {
       return p.run("repeat", relu_of_x, {{"count", std::int64_t{9}}});
     },
     false},
    {"memory that no run leaves defined",
     [](Branches& p) {
       return p("init", {}, {},
                {{"shape", Shape{4}}, {"dtype", DType::kFloat32}, {"init_type", std::string("undef")}});
     },
     [](Branches& p) {
       return p("init", {}, {},
                {{"shape", Shape{4}}, {"dtype", DType::kFloat32}, {"init_type", std::string("undef")}});
     },
     false},
};

TEST_CASE("branches: what both compute of the same operands does not depend on the condition") {
  for (const Row& row : kRows) {
    CAPTURE(row.what);
    Branches p;
    const GraphId then_branch = p.graph(row.then_branch), else_branch = p.graph(row.else_branch);
    const std::vector<TensorId> operands{p.load("x", kEqual), p.load("y", kEqual), p.load("m", kEqual)};
    const OpId op = p.conditional(operands, then_branch, else_branch);
    verify(p.ir);
    const PartitionAnalysis facts(p.ir);
    CHECK(p.ir.partitions().to_string(facts.partition(p.ir.op(op).outputs[0])) == (row.equal ? kAll : kEach));
  }
}

/// The facts of an op's first output, and of memory that the branches are given by reference.
struct Left {
  std::string output, memory, entry, next;
  bool operator==(const Left&) const = default;
};
Left left_by(const Branches::Body& then_branch, const Branches::Body& else_branch, StreamMode of_m = kEqual) {
  Branches p;
  const GraphId first = p.graph(then_branch), second = p.graph(else_branch);
  const TensorId m = p.load("m", of_m);
  const OpId op = p.conditional({p.load("x", kEqual), p.load("y", kEqual), m}, first, second);
  for (const std::uint32_t i : {3U, 7U}) GraphEditor(p.ir).mark_modified(op, i);
  const TensorId entry = p.load_entry(), next = p.next();
  verify(p.ir);
  const PartitionAnalysis facts(p.ir);
  const auto text = [&](TensorId t) { return p.ir.partitions().to_string(facts.partition(t)); };
  return {text(p.ir.op(op).outputs[0]), text(m), text(entry), text(next)};
}

TEST_CASE("branches: memory, remote memory and streams that both leave alike") {
  const auto writes = [](TensorId Branches::*what) {
    return [what](Branches& p) {
      p("add_", {p.m, p.*what});
      p.store(p.*what);
      return p.next();
    };
  };
  const auto nothing = [](Branches& p) { return p("relu", {p.x}); };
  CHECK(left_by(writes(&Branches::x), writes(&Branches::x)) == Left{kAll, kAll, kAll, kAll});
  CHECK(left_by(writes(&Branches::x), writes(&Branches::y)) == Left{kAll, kEach, kEach, kAll});
  CHECK(left_by(writes(&Branches::x), nothing) == Left{kEach, kEach, kEach, kEach});
  CHECK(left_by(writes(&Branches::x), writes(&Branches::x), kUnequal) == Left{kAll, kEach, kAll, kAll});
}

TEST_CASE("branches: facts of the operands are kept") {
  Branches p;
  const GraphId f = p.graph(relu_of_x);
  const TensorId pairs = p.variable("pairs", p.groups(1, 2)), y = p.load("y", kEqual);
  const OpId op = p.conditional({pairs, y, y}, f, f);
  CHECK(p.ir.partitions().to_string(PartitionAnalysis(p.ir).partition(p.ir.op(op).outputs[0])) == kPairs);
}

TEST_CASE("branches: operands that the caller computed alike are one") {
  for (const bool in_call : {false, true}) {
    CAPTURE(in_call);
    Branches p;
    const GraphId first = p.graph([](Branches& b) { return b("tanh", {b.x}); });
    const GraphId second = p.graph([](Branches& b) { return b("tanh", {b.y}); });
    const auto chooses = [&](Branches& b) {
      const OpId op = b.emit("conditional", {b.c, b.x, b.y, b.m, b.c, b.x, b.y, b.m, b.c},
                             {{"then_branch", first}, {"else_branch", second}});
      return b.ir.op(op).outputs[0];
    };
    const TensorId x = p.load("x", kEqual);
    const std::vector<TensorId> operands{p("relu", {x}), p("relu", {x}), x, p.condition};
    OpId op;
    if (in_call) {
      op = p.emit("call", operands, {{"graph", p.graph(chooses)}});
    } else {
      p.x = operands[0], p.y = operands[1], p.m = operands[2], p.c = operands[3];
      op = p.ir.tensor(chooses(p)).uses.producer;
    }
    CHECK(p.ir.partitions().to_string(PartitionAnalysis(p.ir).partition(p.ir.op(op).outputs[0])) == kAll);
  }
}

TEST_CASE("branches: those that round stochastically draw noise of their own") {
  for (const bool rounds : {false, true}) {
    Branches p;
    const TensorType narrow{DType::kFloat16, {4}};
    const auto graph = [&] {
      const GraphId outer = std::exchange(p.at, p.ir.create_graph("f"));
      p.ir.add_output(p.at, p("tanh", {p.input("x", narrow)}));
      return std::exchange(p.at, outer);
    };
    const GraphId f = graph();
    const TensorId x = p.load("x", kEqual, narrow);
    const OpId op = p.emit("conditional", {p.condition, x, x}, {{"then_branch", f}, {"else_branch", f}});
    const PartitionAnalysis facts(p.ir, rounds ? SeedRules(SeedRule::kIdentical) : SeedRules());
    CHECK(p.ir.partitions().to_string(facts.partition(p.ir.op(op).outputs[0])) == (rounds ? kEach : kAll));
  }
}

// If the condition is true, the then branch rounds, with other seeds than if all replicas took it; where it
// is false both branches leave the entry alone.
TEST_CASE("branches: a conditional on the same condition inside one of them") {
  Branches p;
  const auto keeps = [](Branches& b) { return b("relu", {b.x}); };
  const auto stores = [](Branches& b) { return b.store(b("tanh", {b.x})); };
  const GraphId nothing = p.graph(keeps), inner = p.graph(stores);
  const GraphId then_branch = p.graph([&](Branches& b) {
    const OpId op = b.emit("conditional", {b.c, b.x, b.y, b.m, b.c, b.x, b.y, b.m, b.c},
                           {{"then_branch", inner}, {"else_branch", nothing}});
    b("relu", {b.ir.op(op).outputs[0]});
    return b("relu", {b.x});
  });
  const TensorId x = p.load("x", kEqual);
  const OpId op = p.conditional({x, x, x}, then_branch, nothing);
  const TensorId entry = p.load_entry();
  const PartitionAnalysis facts(p.ir);
  CHECK(p.ir.partitions().to_string(facts.partition(p.ir.op(op).outputs[0])) == kAll);
  CHECK(p.ir.partitions().to_string(facts.partition(entry)) == kEach);
}

TEST_CASE("branches: a loop of no iterations writes nothing") {
  Branches p;
  const GraphId spoils = p.graph([](Branches& b) {
    b("copy_var_update_", {b.m, b.load("u", kUnequal)});
    b.store(b.load("v", kUnequal));
    return b.next();
  });
  const TensorId x = p.load("x", kEqual), m = p.load("m", kEqual);
  const OpId loop = p.emit("repeat", {x, x, m, p.condition}, {{"graph", spoils}, {"count", std::int64_t{0}}});
  GraphEditor(p.ir).mark_modified(loop, 2);
  const TensorId entry = p.load_entry(), next = p.next();
  const PartitionAnalysis facts(p.ir);
  for (const TensorId t : {m, entry, next, p.ir.op(loop).outputs[0]})
    CHECK(p.ir.partitions().to_string(facts.partition(t)) == kAll);
}

}  // namespace
}  // namespace popsr
