// A short way to write programs in tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "popsr/analysis/partition_analysis.h"
#include "popsr/ir/op_def.h"
#include "popsr/ops/registry.h"

namespace popsr::test {

using Attrs = std::vector<std::pair<std::string, Attribute>>;
using Expect = std::map<std::string, std::string>;

inline const TensorType kVector{DType::kFloat32, {4}};

inline std::shared_ptr<const HostBytes> zero_bytes(const TensorType& type, std::int64_t groups = 1) {
  const auto elements = static_cast<std::size_t>(num_elements(type.shape) * groups);
  return std::make_shared<const HostBytes>(std::vector<std::byte>(elements * size_of(type.dtype)));
}

/// A program that grows by one line an op; `at` is the graph that grows.
struct Program {
  explicit Program(std::int64_t replicas, std::shared_ptr<const Registry> registry = default_registry())
      : ir(replicas, std::move(registry)) {}

  OpId emit(std::string_view op, std::vector<TensorId> inputs, Attrs attrs = {}, std::string name = {}) {
    EmitArgs args{.attrs = std::move(attrs),
                  .origin = {.location = location},
                  .sequence = sequence,
                  .allow_stochastic = allow_stochastic};
    if (!name.empty()) args.output_names.push_back(std::move(name));
    return ir.emit(at, op, std::move(inputs), std::move(args));
  }
  /// Emits an op of one output.
  TensorId operator()(std::string_view op, std::vector<TensorId> inputs, std::string name = {},
                      Attrs attrs = {}) {
    return ir.op(emit(op, std::move(inputs), std::move(attrs), std::move(name))).outputs.at(0);
  }
  TensorId load(std::string name, StreamMode mode = StreamMode::kReplicate, TensorType type = kVector) {
    const StreamId stream = ir.add_stream(name + "_stream", std::move(type), true, mode);
    return (*this)("host_load", {}, std::move(name), {{"h2d_stream", stream}});
  }
  TensorId variable(std::string_view name, std::optional<ReplicaGrouping> grouping = {},
                    TensorType type = kVector) {
    ReplicaGrouping groups = grouping.value_or(ReplicaGrouping::from_stride(ir.replication()));
    const auto bytes = zero_bytes(type, groups.num_groups());
    return ir.add_variable(name, std::move(type), bytes, std::move(groups),
                           VariableRetrievalMode::kOnePerGroup);
  }
  TensorId input(std::string_view name, TensorType type = kVector) {
    return ir.add_input(at, name, std::move(type));
  }
  TensorId constant(std::string_view name, TensorType type = kVector) {
    const auto bytes = zero_bytes(type);
    return ir.add_constant(at, name, std::move(type), bytes);
  }
  ReplicaGrouping groups(std::int64_t stride, std::int64_t size) const {
    return ReplicaGrouping::from_stride(ir.replication(), stride, size);
  }
  TensorId all_reduce(TensorId t, ReplicaGrouping group, std::string name = {}) {
    return (*this)("replicated_all_reduce", {t}, std::move(name), {{"group", std::move(group)}});
  }

  Ir ir;
  GraphId at = kMainGraph;
  LocationId location = {};
  SequenceMode sequence = SequenceMode::kPass;
  bool allow_stochastic = true;
  SeedRules seeds = {};  ///< Rules that its facts and sessions are to have.
};

/// Facts of the tensors named in `like`, for a comparison with it.
inline Expect facts_of(const Ir& ir, const PartitionAnalysis& facts, const Expect& like) {
  Expect result;
  for (const auto& [name, text] : like) {
    const GraphId graph = [&] {
      for (const TensorId t : ids<TensorId>(ir.num_tensors())) {
        if (ir.tensor(t).name == name) return ir.tensor(t).graph;
      }
      return kMainGraph;
    }();
    result[name] = ir.partitions().to_string(facts.partition(ir.find_tensor(graph, name)));
  }
  return result;
}

/// Text of the error that `body` raises: "" when it raises none.
template <class E, class Body>
std::string error_of(Body&& body) {
  try {
    body();
  } catch (const E& error) {
    return error.what();
  }
  return "";
}

}  // namespace popsr::test
