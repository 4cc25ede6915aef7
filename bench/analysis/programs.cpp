#include "programs.h"

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "popsr/ops/registry.h"

namespace popsr::bench {
namespace {

constexpr std::int64_t kTensorParallel = 8;

const TensorType kMatrix{DType::kFloat32, {2, 2}};

/// A program that grows by one line an op; `at` is the graph that grows.
class Builder {
 public:
  explicit Builder(std::int64_t replicas) : ir(std::make_unique<Ir>(replicas, default_registry())) {}

  using Attrs = std::vector<std::pair<std::string, Attribute>>;
  TensorId operator()(std::string_view op, std::vector<TensorId> inputs, Attrs attrs = {}) {
    EmitArgs args{.attrs = std::move(attrs), .sequence = sequence};
    return ir->op(ir->emit(at, op, std::move(inputs), std::move(args))).outputs.at(0);
  }
  TensorId variable(const ReplicaGrouping& grouping) {
    auto& data = zeros_[grouping.num_groups()];
    const auto groups = static_cast<std::size_t>(grouping.num_groups());
    if (!data) data = std::make_shared<const HostBytes>(std::vector<std::byte>(groups * 16));
    return ir->add_variable("w", kMatrix, data, grouping, VariableRetrievalMode::kOnePerGroup);
  }
  TensorId load(StreamMode mode) {
    const StreamId stream = ir->add_stream("x", kMatrix, true, mode);
    return (*this)("host_load", {}, {{"h2d_stream", stream}});
  }
  ReplicaGrouping groups(std::int64_t stride, std::int64_t size) const {
    return ReplicaGrouping::from_stride(ir->replication(), stride, size);
  }
  std::int64_t num_ops() const { return static_cast<std::int64_t>(ir->num_ops()); }

  std::unique_ptr<Ir> ir;
  GraphId at = kMainGraph;
  SequenceMode sequence = SequenceMode::kUnordered;

 private:
  std::map<std::int64_t, std::shared_ptr<const HostBytes>> zeros_;  ///< Zeros by number of groups.
};

/// One layer and the values that its gradient needs.
struct Layer {
  TensorId up, down, scale;  ///< Weights.
  TensorId in = kNone, normed = kNone, hidden = kNone, active = kNone;
};

class Gpt {
 public:
  Gpt(std::int64_t replicas, std::int64_t ops)
      : ops_(ops),
        shards_(ReplicaGrouping::from_stride(replicas, kTensorParallel, replicas / kTensorParallel)),
        neighbours_(ReplicaGrouping::from_stride(replicas, 1, kTensorParallel)),
        all_(ReplicaGrouping::from_stride(replicas)),
        p_(replicas) {}

  std::unique_ptr<Ir> build() && {
    const TensorId batch = p_.load(StreamMode::kReplicate);
    TensorId x = p_("replicated_broadcast", {batch}, {{"root", std::int64_t{0}}, {"group", neighbours_}});
    rate_ = p_.load(StreamMode::kBroadcast);
    while (p_.num_ops() * 33 < ops_ * 7) x = forward(x);
    TensorId grad = p_("softmax", {x}, {{"axis", std::int64_t{-1}}});
    for (auto layer = layers_.rbegin(); layer != layers_.rend(); ++layer) grad = backward(*layer, grad);
    return std::move(p_.ir);
  }

 private:
  TensorId reduce(TensorId t, const ReplicaGrouping& group) {
    return p_("replicated_all_reduce", {t}, {{"group", group}});
  }

  TensorId forward(TensorId x) {
    Layer layer{.up = p_.variable(shards_), .down = p_.variable(shards_), .scale = p_.variable(all_)};
    layer.in = x;
    const TensorId mean = p_("mean", {x}, {{"axis", std::vector<std::int64_t>{1}}, {"keepdims", true}});
    layer.normed = p_("mul", {p_("sub", {x, mean}), layer.scale});
    layer.hidden = p_("matmul", {layer.normed, layer.up});
    layer.active = p_("gelu", {layer.hidden});
    const TensorId part = p_("matmul", {layer.active, layer.down});
    layers_.push_back(layer);
    return p_("add", {reduce(part, neighbours_), x});
  }

  TensorId backward(const Layer& layer, TensorId grad) {
    const TensorId down = p_("transpose", {layer.down});
    const TensorId hidden = p_("mul", {p_("matmul", {grad, down}), p_("tanh", {layer.hidden})});
    const TensorId normed = reduce(p_("matmul", {hidden, p_("transpose", {layer.up})}), neighbours_);
    update(layer.down, p_("matmul", {p_("transpose", {layer.active}), grad}));
    update(layer.up, p_("matmul", {p_("transpose", {layer.normed}), hidden}));
    update(layer.scale, p_("mul", {normed, layer.in}));
    return p_("add", {grad, p_("mul", {normed, layer.scale})});
  }

  /// With momentum.
  void update(TensorId weight, TensorId grad) {
    const ReplicaGrouping& grouping = *p_.ir->tensor(weight).state.grouping;
    const TensorId momentum = p_.variable(grouping);
    const TensorId mean = reduce(grad, shards_);
    const TensorId now = p_("add_", {momentum, mean});
    p_("add_", {weight, p_("mul", {now, rate_})});
  }

  std::int64_t ops_;
  ReplicaGrouping shards_, neighbours_, all_;
  Builder p_;
  TensorId rate_ = kNone;
  std::vector<Layer> layers_;
};

/// `ops` ops from x on, between two values.
TensorId block(Builder& p, TensorId x, TensorId weight, std::int64_t ops) {
  const ReplicaGrouping neighbours = p.groups(1, kTensorParallel);
  TensorId y = x;
  for (std::int64_t i = 0; i < ops; ++i) {
    y = i % 8 == 7 ? p("replicated_all_reduce", {y}, {{"group", neighbours}})
                   : p("add", {y, i % 2 == 0 ? weight : x});
  }
  return y;
}

}  // namespace

std::unique_ptr<Ir> gpt_step(std::int64_t replicas, std::int64_t ops) { return Gpt(replicas, ops).build(); }

std::unique_ptr<Ir> layers_inlined(std::int64_t replicas, std::int64_t layers, std::int64_t ops_a_layer) {
  Builder p(replicas);
  TensorId x = p.load(StreamMode::kReplicate);
  const TensorId weight = p.variable(p.groups(1, replicas));
  for (std::int64_t i = 0; i < layers; ++i) x = block(p, x, weight, ops_a_layer);
  return std::move(p.ir);
}

std::unique_ptr<Ir> layers_called(std::int64_t replicas, std::int64_t layers, std::int64_t ops_a_layer) {
  Builder p(replicas);
  const GraphId layer = p.ir->create_graph("layer");
  p.at = layer;
  const TensorId in = p.ir->add_input(layer, "x", kMatrix);
  const TensorId w = p.ir->add_input(layer, "w", kMatrix);
  p.ir->add_output(layer, block(p, in, w, ops_a_layer));
  p.at = kMainGraph;
  TensorId x = p.load(StreamMode::kReplicate);
  const TensorId weight = p.variable(p.groups(1, replicas));
  for (std::int64_t i = 0; i < layers; ++i) x = p("call", {x, weight}, {{"graph", layer}});
  return std::move(p.ir);
}

std::unique_ptr<Ir> late_updates(std::int64_t replicas, std::int64_t weights) {
  Builder p(replicas);
  p.sequence = SequenceMode::kOrdered;
  std::vector<TensorId> variables;
  for (std::int64_t i = 0; i < weights; ++i) variables.push_back(p.variable(p.groups(1, replicas)));
  TensorId x = p.variable(p.groups(1, replicas));
  std::vector<TensorId> activations, updates;
  for (const TensorId w : variables) {
    activations.push_back(x);
    x = p("mul", {x, w});
  }
  for (std::size_t i = variables.size(); i-- > 0;) {
    updates.push_back(p("mul", {x, activations[i]}));
    x = p("mul", {x, variables[i]});
  }
  for (std::size_t i = 0; i < variables.size(); ++i) {
    p("scaled_add_", {variables[variables.size() - 1 - i], updates[i]}, {{"a", 1.0}, {"b", 0.1}});
  }
  return std::move(p.ir);
}

std::unique_ptr<Ir> many_collectives(std::int64_t replicas, std::int64_t ops) {
  Builder p(replicas);
  const ReplicaGrouping neighbours = p.groups(1, kTensorParallel);
  const ReplicaGrouping shards = p.groups(kTensorParallel, replicas / kTensorParallel);
  const auto reduce = [&p](TensorId t, const ReplicaGrouping& group, std::string how) {
    return p("replicated_all_reduce", {t}, {{"op", std::move(how)}, {"group", group}});
  };
  const TensorId batch = p.load(StreamMode::kReplicate);
  TensorId x = batch;
  while (p.num_ops() < ops) {
    const TensorId weight = p.variable(shards);
    const TensorId y = p("mul", {p("add", {x, batch}), weight});
    const TensorId sum = reduce(y, neighbours, "add");
    const TensorId sent = p("replicated_broadcast", {y}, {{"root", std::int64_t{0}}, {"group", neighbours}});
    x = p("sub", {reduce(sum, shards, "max"), sent});
    const TensorId mean = reduce(p("mul", {y, x}), shards, "mean");
    p("add_", {weight, p("tanh", {mean})});
  }
  return std::move(p.ir);
}

std::unique_ptr<Ir> rotation(std::int64_t replicas, std::int64_t values) {
  Builder p(replicas);
  const GraphId body = p.ir->create_graph("body");
  p.at = body;
  std::vector<TensorId> carried;
  for (std::int64_t i = 0; i < values; ++i) carried.push_back(p.ir->add_input(body, "v", kMatrix));
  for (std::int64_t i = 0; i < values; ++i) {
    p.ir->add_output(body, carried[static_cast<std::size_t>((i + 1) % values)]);
  }
  p.at = kMainGraph;
  std::vector<TensorId> start(static_cast<std::size_t>(values), p.load(StreamMode::kBroadcast));
  start.back() = p.load(StreamMode::kReplicate);
  p("repeat", start, {{"graph", body}, {"count", std::int64_t{3}}});
  return std::move(p.ir);
}

std::unique_ptr<Ir> loop_nest(std::int64_t replicas, std::int64_t depth) {
  Builder p(replicas);
  GraphId inner;
  for (std::int64_t level = 0; level < depth; ++level) {
    const GraphId body = p.ir->create_graph("body");
    p.at = body;
    const TensorId x = p.ir->add_input(body, "x", kMatrix);
    const TensorId y = p.ir->add_input(body, "y", kMatrix);
    TensorId sum = p("add", {x, y});
    if (level > 0) sum = p("repeat", {sum, y}, {{"graph", inner}, {"count", std::int64_t{2}}});
    p.ir->add_output(body, p("tanh", {sum}));
    p.ir->add_output(body, x);
    inner = body;
  }
  p.at = kMainGraph;
  p("repeat", {p.load(StreamMode::kBroadcast), p.load(StreamMode::kReplicate)},
    {{"graph", inner}, {"count", std::int64_t{2}}});
  return std::move(p.ir);
}

}  // namespace popsr::bench
