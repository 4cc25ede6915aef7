// Regressions: each test is named after what broke.
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "popsr/base/error.h"
#include "popsr/effects/verify.h"
#include "popsr/runtime/session/session.h"
#include "popsr/transform/graph_editor.h"
#include "support/program.h"

using namespace popsr;
using popsr::test::error_of;
using popsr::test::Program;

namespace {

/// A graph of one input that `op` modifies.
GraphId modifying_graph(Program& p, std::string_view op) {
  p.at = p.ir.create_graph("modify");
  p.ir.add_output(p.at, p(op, {p.input("a")}));
  return std::exchange(p.at, kMainGraph);
}

}  // namespace

TEST_CASE("a constant cannot be passed by reference, and by value it stays what it is") {
  for (const bool repeat : {false, true}) {
    CAPTURE(repeat);
    Program p(1);
    p.sequence = SequenceMode::kOrdered;
    const GraphId f = modifying_graph(p, "exp_");
    const TensorId c = p.constant("c");
    test::Attrs attrs = {{"graph", f}};
    if (repeat) attrs.emplace_back("count", std::int64_t{2});
    const OpId call = p.emit(repeat ? "repeat" : "call", {c}, attrs);
    const std::string message = error_of<GraphError>([&] { GraphEditor(p.ir).mark_modified(call, 0); });
    CHECK(message.find("input 0 is modified but constant, got 'c', expected a variable or an activation") !=
          std::string::npos);
    const StreamId stream = p.ir.add_stream("out", test::kVector, false, StreamMode::kReplicate);
    p.emit("host_store", {c}, {{"d2h_stream", stream}});
    std::vector<float> out(4, 7.0F);
    const std::vector<StreamBuffer> buffers = {{reinterpret_cast<std::byte*>(out.data()), 1}};
    Session session({std::shared_ptr<const Ir>(), &p.ir}, {});
    session.run(buffers, {});
    CHECK(out == std::vector<float>(4, 0.0F));
  }
}

TEST_CASE("every use between two writers is ordered against both") {
  const auto error = [](auto&& build) {
    Program p(1);
    const TensorId w = p.variable("w");
    build(p, w);
    return error_of<GraphError>([&] { verify_order(p.ir); });
  };
  const auto ambiguous = [](const std::string& text) { return text.find("Inplacing ambiguity") == 0; };

  // The first reader has its order by data, the second has none.
  CHECK(ambiguous(error([](Program& p, TensorId w) {
    const TensorId first = p("tanh", {w});
    p("tanh", {w});
    p("accumulate_", {w, first});
  })));
  // As above, the ordered reader last.
  CHECK(ambiguous(error([](Program& p, TensorId w) {
    p("tanh", {w});
    p("accumulate_", {w, p("tanh", {w})});
  })));
  // Reads after the writer: by its result, and without any order; another graph is written in between.
  CHECK(ambiguous(error([](Program& p, TensorId w) {
    const TensorId after = p("accumulate_", {w, p("tanh", {w})});
    modifying_graph(p, "exp_");
    p("add", {p("tanh", {after}), w});
    p("tanh", {w});
  })));
  // All ordered by data, on several chains.
  CHECK(error([](Program& p, TensorId w) {
          const TensorId x = p("tanh", {w}), y = p("exp", {w});
          const TensorId after = p("accumulate_", {w, p("add", {x, y})});
          modifying_graph(p, "exp_");
          const TensorId u = p("tanh", {after}), v = p("add", {p("exp", {after}), w});
          p("accumulate_", {w, p("add", {u, v})});
        }) == "");
}

TEST_CASE("a tensor whose bytes overflow is refused and leaves the program as it was") {
  Program p(4);
  const auto init = [&p](Shape shape) {
    return p("init", {}, "x", {{"shape", std::move(shape)}, {"dtype", DType::kFloat32}});
  };
  init({1 << 20, 1 << 20});
  const std::size_t ops = p.ir.num_ops(), tensors = p.ir.num_tensors();
  CHECK_THROWS_AS(init({std::int64_t{1} << 33, std::int64_t{1} << 31}), ShapeError);
  CHECK_THROWS_AS(init({std::int64_t{1} << 59}), ShapeError);  // 4 bytes on 4 replicas
  CHECK(p.ir.num_ops() == ops);
  CHECK(p.ir.num_tensors() == tensors);
}

TEST_CASE("calls nested deeper than a stack are refused") {
  Program p(1);
  p.at = p.ir.create_graph("leaf");
  p.ir.add_output(p.at, p("tanh", {p.input("a")}));
  const auto nest = [&p](int levels) {
    for (int i = 0; i < levels; ++i) {
      const GraphId inner = p.at;
      p.at = p.ir.create_graph("level");
      p.ir.add_output(p.at, p("call", {p.input("a")}, "out", {{"graph", inner}}));
    }
  };
  nest(199);
  const GraphId inner = std::exchange(p.at, kMainGraph);
  p("call", {p.variable("w")}, "out", {{"graph", inner}});
  CHECK_NOTHROW(Session({std::shared_ptr<const Ir>(), &p.ir}, {}));
  p.at = inner;
  CHECK_THROWS_AS(nest(2), GraphError);
}
