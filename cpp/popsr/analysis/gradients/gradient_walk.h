// One graph in one context, for GradientFlow: the shares of its memory as its ops run.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "popsr/analysis/gradients/gradient_flow.h"
#include "popsr/analysis/memory/memory_facts.h"
#include "popsr/ir/calls/called_graphs.h"
#include "popsr/ir/gradient_graph.h"
#include "popsr/ir/op_def.h"

namespace popsr {

class GradientWalk {
 public:
  using ShareId = GradientFlow::ShareId;

  GradientWalk(GradientFlow& flow, ContextId context, const std::vector<ShareId>& inputs);
  GradientFlow::Result run();
  /// Share of a tensor after `end` ops.
  ShareId share_after(TensorId tensor, std::uint32_t end);

 private:
  void start(const std::vector<ShareId>& inputs);
  void step_until(std::uint32_t end);
  void fetch_types(std::size_t at) const;
  void step(const Op& op, std::span<const PartitionId> facts);
  void step(const Op& op, const std::vector<TensorId>& inputs, const std::vector<TensorId>& outputs,
            std::span<const PartitionId> facts, const ShareTraits& traits);
  void step_graphs(const Op& op);
  void step_call(const Op& op, const FactView& facts);
  void step_repeat(const Op& op, const FactView& facts);
  void step_conditional(const Op& op, const FactView& facts);
  std::vector<ShareId> arguments(const Op& op, const CalledGraph& called);
  void write_modified(const Op& op, const CalledGraph& called, const std::vector<ShareId>& inputs,
                      bool merges);
  ShareId starting(const Op& call, const GradientGraph& made, std::size_t provided);
  void write_results(const Op& op, const std::vector<ShareId>& shares, const GradientGraph* made);
  void write_facts(const Op& op, const FactView& facts);

  /// Share of the outputs of an op that runs no graphs; kPlain if it takes no gradient.
  ShareId transfer(const Op& op, const std::vector<TensorId>& inputs, const ShareTraits& traits);
  ShareId transfer_collective(const Op& op, TensorId input);
  ShareId transfer_local(const Op& op, const std::vector<TensorId>& inputs, const ShareTraits& traits);
  const ShareTraits& traits_of(const Op& op);
  bool updates(const Op& op) const;
  void note_repeated_sum(const Op& op, TensorId input);
  ShareId after_collective(const Op& op, TensorId input);
  ShareId after_exchange(const Op& op, TensorId input);
  ShareId after_local(const Op& op, const std::vector<TensorId>& inputs, PartitionId values);
  std::optional<GradientShare> sum_of_gradients(const Op& op, const std::vector<TensorId>& inputs);
  PartitionId rule(const Op& op, const std::vector<PartitionId>& inputs) const;
  ShareId unknown(const Op& op, GradientFault fault, TensorId input, const GradientShare& share);
  TensorId forward_of(TensorId gradient) const;

  ShareId read(TensorId tensor) const;
  ShareId read_shared(TensorId tensor) const;
  TensorId storage_of(TensorId tensor) const;
  PartitionId fact(TensorId tensor) const;
  void write_fact(TensorId tensor, PartitionId fact);
  void write(const Op& op, TensorId tensor, ShareId share);
  void write_shared(const Op& op, TensorId tensor, ShareId share);
  void write_remote(const Op& op, TensorId entry, ShareId share);
  void check_update(const Op& op, TensorId storage, ShareId share);

  GradientFlow& flow_;
  const Ir& ir_;
  PartitionTable& table_;
  const Context& context_;
  ContextId id_;
  const Graph& graph_;
  const GradientGraph* made_;          ///< Record of autodiff; null for graphs that it did not make.
  std::optional<MemoryFacts> memory_;  ///< Current facts, for graphs with views.
  /// Current facts, for graphs without views, by Tensor::index of the storage.
  std::vector<PartitionId> now_;
  std::vector<ShareId> shares_;     ///< Current shares of all graphs, by Tensor::index of the storage.
  std::vector<PartitionId> facts_;  ///< Facts of the inputs of one op.
  bool is_repeated_sum_ = false;    ///< True if the last collective repeated a sum over the same replicas.
};

}  // namespace popsr
