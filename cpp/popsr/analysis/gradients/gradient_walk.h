// One graph in one context, for GradientFlow: the shares of its memory as its ops run.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "popsr/analysis/gradients/gradient_flow.h"
#include "popsr/analysis/memory/memory_facts.h"
#include "popsr/ir/calls/called_graphs.h"
#include "popsr/ir/flat/flat_schedule.h"
#include "popsr/ir/gradient_graph.h"
#include "popsr/ir/op_def.h"

namespace popsr {

/// An op of a walk with what most steps need of it: the op itself may be far away in memory.
struct WalkedOp {
  const OpDef* def = nullptr;
  OpId id = kNone;
  std::span<const TensorId> inputs, outputs;
  const FlatOp* flat = nullptr;  ///< Its place in the schedule; null if only the op knows all of it.
  std::uint64_t groups = 0;      ///< ReplicaGrouping::identity() of the groups of a collective in a schedule.

  WalkedOp(const Op& op)
      : def(op.def), id(op.id), inputs(op.inputs), outputs(op.outputs) {}  // NOLINT: a view
  WalkedOp(const FlatSchedule& schedule, std::size_t at)
      : def(schedule[at].def),
        id(schedule[at].id),
        inputs(schedule.inputs(at)),
        outputs(schedule.outputs(at)),
        flat(&schedule[at]),
        groups(flat->groups == kNone ? 0 : schedule.groups()[flat->groups].identity()) {}
};

class GradientWalk {
 public:
  using ShareId = GradientFlow::ShareId;
  using Tensors = std::span<const TensorId>;

  GradientWalk(GradientFlow& flow, ContextId context, const std::vector<ShareId>& inputs);
  GradientFlow::Result run();
  /// Share of a tensor after `end` ops.
  ShareId share_after(TensorId tensor, std::uint32_t end);

 private:
  void start(const std::vector<ShareId>& inputs);
  void step_until(std::uint32_t end);
  void step(const WalkedOp& op, std::span<const PartitionId> facts);
  void step(const WalkedOp& op, Tensors inputs, Tensors outputs, std::span<const PartitionId> facts,
            const ShareTraits& traits);
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
  ShareId transfer(const WalkedOp& op, Tensors inputs, const ShareTraits& traits);
  ShareId transfer_collective(const WalkedOp& op, TensorId input);
  ShareId transfer_local(const WalkedOp& op, Tensors inputs, const ShareTraits& traits);
  CollectiveStep key_of(const WalkedOp& op) const;
  const ShareTraits& traits_of(const OpDef& def);
  bool takes_gradient(Tensors inputs, const ShareTraits& traits) const;
  bool updates(const WalkedOp& op) const;
  bool is_floating(const WalkedOp& op, TensorId output) const;
  void note_repeated_sum(const WalkedOp& op, TensorId input);
  ShareId after_collective(const Op& op, TensorId input);
  ShareId after_exchange(const Op& op, TensorId input);
  ShareId after_local(const Op& op, Tensors inputs, PartitionId values);
  std::optional<GradientShare> sum_of_gradients(const Op& op, Tensors inputs);
  PartitionId rule(const Op& op, const std::vector<PartitionId>& inputs) const;
  ShareId unknown(const Op& op, GradientFault fault, TensorId input, const GradientShare& share);
  TensorId forward_of(TensorId gradient) const;

  ShareId read(TensorId tensor) const;
  ShareId read_shared(TensorId tensor) const;
  TensorId storage_of(TensorId tensor) const;
  PartitionId fact(TensorId tensor) const;
  void write_fact(TensorId tensor, PartitionId fact);
  void write(const WalkedOp& op, TensorId tensor, ShareId share);
  void write_shared(const WalkedOp& op, TensorId tensor, ShareId share);
  void write_remote(const WalkedOp& op, TensorId entry, ShareId share);
  void check_update(const WalkedOp& op, TensorId storage, ShareId share);

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
