// Remote memory and shards: what they hold, what is proved about them, and what they refuse.
#include <doctest/doctest.h>

#include <array>
#include <cstring>
#include <numeric>

#include "popsr/base/error.h"
#include "popsr/effects/verify.h"
#include "popsr/runtime/session/session.h"
#include "popsr/transform/graph_editor.h"
#include "support/program.h"

namespace popsr {
namespace {

using test::Attrs;
using test::error_of;
using test::kVector;
using test::Program;

Attrs remote(RemoteId buffer, std::optional<std::int64_t> entry = {}) {
  Attrs attrs{{"remote_buffer", buffer}};
  if (entry) attrs.emplace_back("entry", *entry);
  return attrs;
}

std::string fact(Program& p, const PartitionAnalysis& facts, TensorId t) {
  return p.ir.partitions().to_string(facts.partition(t));
}

/// Floats 0, 1, 2, …
std::shared_ptr<const HostBytes> counting(std::size_t count) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), 0.0F);
  std::vector<std::byte> bytes(count * sizeof(float));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return std::make_shared<const HostBytes>(std::move(bytes));
}

std::vector<float> read(const Session& session, TensorId variable, HostRows rows) {
  std::vector<float> values(session.host_bytes(variable, rows) / sizeof(float));
  session.read_variable(variable, rows, reinterpret_cast<std::byte*>(values.data()));
  return values;
}

TEST_CASE("remote: a known entry takes the partition of what is stored there") {
  Program p(4);
  const RemoteId buffer = p.ir.add_remote_buffer(kVector, 2);
  p.emit("remote_store", {p.load("own")}, remote(buffer, 0));
  const TensorId first = p("remote_load", {}, {}, remote(buffer, 0));
  const TensorId second = p("remote_load", {}, {}, remote(buffer, 1));
  p.emit("remote_store", {p.load("all", StreamMode::kBroadcast)}, remote(buffer, 0));
  const TensorId third = p("remote_load", {}, {}, remote(buffer, 0));
  const PartitionAnalysis facts(p.ir);
  CHECK(fact(p, facts, first) == "{0}{1}{2}{3}");
  CHECK(fact(p, facts, second) == "{0,1,2,3}");  // zeros
  CHECK(fact(p, facts, third) == "{0,1,2,3}");
}

TEST_CASE("remote: an unknown entry may be any of them") {
  Program p(4);
  const RemoteId buffer = p.ir.add_remote_buffer(kVector, 2);
  const TensorId pair = p.variable("pair", p.groups(1, 2));
  const TensorId index = p.load("index", StreamMode::kBroadcast, {DType::kUInt32, {}});
  p.emit("remote_store", {pair, index}, remote(buffer));
  const TensorId known = p("remote_load", {}, {}, remote(buffer, 0));
  const TensorId own = p.load("own_index", StreamMode::kReplicate, {DType::kUInt32, {}});
  const TensorId unknown = p("remote_load", {own}, {}, remote(buffer));
  const PartitionAnalysis facts(p.ir);
  CHECK(fact(p, facts, known) == "{0,1}{2,3}");
  CHECK(fact(p, facts, unknown) == "{0}{1}{2}{3}");
}

TEST_CASE("remote: entries carry over calls, loops and runs") {
  Program p(2);
  const RemoteId buffer = p.ir.add_remote_buffer(kVector, 2);
  const GraphId body = p.ir.create_graph("body");
  p.at = body;
  p.emit("remote_store", {p("remote_load", {}, {}, remote(buffer, 0))}, remote(buffer, 1));
  p.emit("remote_store", {p.load("own")}, remote(buffer, 0));
  p.at = kMainGraph;
  const TensorId before = p("remote_load", {}, {}, remote(buffer, 1));
  p.emit("repeat", {}, {{"graph", body}, {"count", std::int64_t{2}}});
  const TensorId after = p("remote_load", {}, {}, remote(buffer, 1));
  const PartitionAnalysis facts(p.ir);
  CHECK(fact(p, facts, after) == "{0}{1}");   // second iteration
  CHECK(fact(p, facts, before) == "{0}{1}");  // second run
}

TEST_CASE("remote: what one call stores the next one loads") {
  Program p(2);
  const RemoteId buffer = p.ir.add_remote_buffer({DType::kFloat32, {3}}, 2);
  const TensorId variable = p.ir.add_variable("v", {DType::kFloat32, {3}}, counting(6), p.groups(1, 1),
                                              VariableRetrievalMode::kOnePerGroup);
  GraphEditor(p.ir).place_variable(variable, buffer, 1, 1);
  const TensorId t = p("remote_load", {}, {}, remote(buffer, 1));
  p.emit("remote_store", {p("add", {t, t})}, remote(buffer, 1));
  for (const bool dedup : {true, false}) {
    Session session(std::shared_ptr<const Ir>(&p.ir, [](const Ir*) {}), {.dedup = dedup});
    session.run({}, {});
    session.run({}, {});
    CHECK(read(session, variable, HostRows::kGroups) == std::vector<float>{0, 4, 8, 12, 16, 20});
  }
}

TEST_CASE("remote: shards lie on consecutive members of a group, padded with zeros") {
  Program p(8);
  const TensorId variable = p.ir.add_variable("v", {DType::kFloat32, {5}}, counting(10), p.groups(2, 4),
                                              VariableRetrievalMode::kOnePerGroup);
  const TensorId shard = GraphEditor(p.ir).add_shard(variable, 2, "shard");
  CHECK(p.ir.tensor(shard).type == TensorType{DType::kFloat32, {3}});
  CHECK(p.ir.tensor(shard).meta_shape == Shape{5});
  const RemoteId buffer = p.ir.add_remote_buffer({DType::kFloat32, {3}}, 1);
  const TensorId probe = p.ir.add_variable("probe", {DType::kFloat32, {3}}, counting(24), p.groups(1, 1),
                                           VariableRetrievalMode::kOnePerGroup);
  GraphEditor(p.ir).place_variable(probe, buffer, 0, 1);
  p.emit("remote_store", {shard}, remote(buffer, 0));
  const PartitionAnalysis facts(p.ir);
  CHECK(fact(p, facts, shard) == "{0,4}{1,5}{2,6}{3,7}");
  Session session(std::shared_ptr<const Ir>(&p.ir, [](const Ir*) {}), {});
  session.run({}, {});
  const std::vector<float> parts{0, 1, 2, 5, 6, 7, 3, 4, 0, 8, 9, 0, 0, 1, 2, 5, 6, 7, 3, 4, 0, 8, 9, 0};
  CHECK(read(session, probe, HostRows::kReplicas) == parts);
  const std::vector<float> rows{0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  CHECK(read(session, variable, HostRows::kGroups) == rows);
  CHECK(session.divergence(variable) == std::nullopt);
  std::vector<float> next(rows.rbegin(), rows.rend());
  session.write_variable(variable, HostRows::kGroups, reinterpret_cast<const std::byte*>(next.data()));
  CHECK(read(session, variable, HostRows::kGroups) == next);
  CHECK(read(session, variable, HostRows::kReplicas).size() == 40);
}

TEST_CASE("remote: a divergence is found in the part that the host does not read") {
  Program p(4);
  const TensorId variable = p.ir.add_variable("v", {DType::kFloat32, {4}}, counting(4), p.groups(1, 4),
                                              VariableRetrievalMode::kOnePerGroup);
  const TensorId shard = GraphEditor(p.ir).add_shard(variable, 2, "shard");
  p("copy_var_update_", {shard, p.load("x", StreamMode::kReplicate, {DType::kFloat32, {2}})});
  Session session(std::shared_ptr<const Ir>(&p.ir, [](const Ir*) {}), {});
  std::array<float, 8> data{1, 2, 3, 4, 1, 2, 3, 5};
  const StreamBuffer buffer{reinterpret_cast<std::byte*>(data.data()), 1};
  session.run({&buffer, 1}, {});
  const auto found = session.divergence(variable);
  REQUIRE(found.has_value());
  CHECK(found->first == 1);
  CHECK(found->second == 3);
  CHECK(found->element == 3);  // of the variable: element 1 of part 1
}

TEST_CASE("remote: refused") {
  Program p(4);
  const RemoteId buffer = p.ir.add_remote_buffer(kVector, 2);
  const TensorId v = p.variable("v"), w = p.variable("w", p.groups(1, 2)), u = p.variable("u");
  GraphEditor(p.ir).place_variable(v, buffer, 0, 1);
  const TensorId x = p.load("x"), y = p.load("y", StreamMode::kReplicate, {DType::kFloat32, {3}});
  struct Row {
    std::string got, expected;
  };
  const std::vector<Row> rows{
      {error_of<GraphError>([&] {
         p("add", {v, x});
       }),
       "add: input lhs is for the host only, got 'v', expected what remote_load gives"},
      {error_of<OutOfRangeError>([&] { p("remote_load", {}, {}, remote(buffer, 2)); }),
       "remote_load: offset is outside the buffer, got 2, expected 0 to 1 of remote buffer 1"},
      {error_of<OutOfRangeError>([&] { p.emit("remote_store", {x}, remote(buffer, -1)); }),
       "remote_store: offset is outside the buffer, got -1, expected 0 to 1 of remote buffer 1"},
      {error_of<ShapeError>([&] { p.emit("remote_store", {y}, remote(buffer, 0)); }),
       "Tensor y does not match buffer. remote_store: got f32[3], expected f32[4] of remote buffer 1"},
      {error_of<AttributeValueError>([&] { p("remote_load", {}, {}, remote(buffer)); }),
       "remote_load: offset is missing"},
      {error_of<GraphError>([&] { GraphEditor(p.ir).place_variable(u, buffer, 0, 1); }),
       "remote_variable: entry is taken, got offset 0 of buffer 1 for 'u', which holds 'v', expected a free "
       "entry"},
      {error_of<OutOfRangeError>([&] { GraphEditor(p.ir).place_variable(u, buffer, 2, 1); }),
       "remote_variable: no such entry for 'u', got offset 2, expected 0 to 1 of buffer 1"},
      {error_of<ShapeError>([&] { GraphEditor(p.ir).place_variable(w, buffer, 1, 2); }),
       "remote_variable: 'w' does not match its buffer, got f32[2], expected f32[4]"},
      {error_of<ReplicaError>([&] { GraphEditor(p.ir).place_variable(w, buffer, 1, 4); }),
       "replica_sharded_variable: shards do not tile the groups of 'w', got shard_over 4 for groups of 2, "
       "expected a divisor"},
      {error_of<AttributeValueError>([&] { p.ir.add_remote_buffer(kVector, 0); }),
       "remote_buffer: Entries must be a non-zero, positive integer, got 0, expected 1 to 2**31 - 1"},
      {error_of<AttributeValueError>([&] { GraphEditor(p.ir).grow_remote_buffer(buffer, 1); }),
       "remote_buffer: buffer 1 cannot shrink, got 1 entries, expected 2 or more"},
  };
  for (const Row& row : rows) CHECK(row.got == row.expected);
  verify(p.ir);
}

TEST_CASE("remote: an offset is checked before anything is loaded or stored") {
  Program p(2);
  const RemoteId buffer = p.ir.add_remote_buffer(kVector, 2);
  const TensorId index = p.load("index", StreamMode::kReplicate, {DType::kInt32, {}});
  const TensorId variable = p.variable("v");
  GraphEditor(p.ir).place_variable(variable, buffer, 0, 1);
  p.emit("remote_store", {p.load("x"), index}, remote(buffer));
  Session session(std::shared_ptr<const Ir>(&p.ir, [](const Ir*) {}), {});
  std::array<std::int32_t, 2> offsets{0, -1};
  std::array<float, 8> data{1, 1, 1, 1, 1, 1, 1, 1};
  const std::array<StreamBuffer, 2> buffers{
      {{reinterpret_cast<std::byte*>(offsets.data()), 1}, {reinterpret_cast<std::byte*>(data.data()), 1}}};
  CHECK(error_of<OutOfRangeError>([&] { session.run(buffers, {}); }) ==
        "remote_store: offset is outside the buffer, got -1, expected 0 to 1 of remote buffer 1");
  CHECK(read(session, variable, HostRows::kReplicas) == std::vector<float>(8, 0.0F));
}

}  // namespace
}  // namespace popsr
