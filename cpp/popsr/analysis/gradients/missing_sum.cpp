#include "popsr/analysis/gradients/missing_sum.h"

#include <algorithm>
#include <cstddef>
#include <unordered_map>
#include <vector>

#include "popsr/ir/op_def.h"

namespace popsr {
namespace {

class MissingSums {
 public:
  MissingSums(const PartitionAnalysis& facts, PartitionId declared)
      : facts_(facts), ir_(facts.ir()), declared_(declared) {}

  std::optional<MissingSum> behind(TensorId value) const;
  MissingSum at(const Op& made, TensorId gradient, const std::vector<OpId>& users) const;

 private:
  bool differs(TensorId tensor) const {
    return tensor != kNone && !ir_.partitions().refines(declared_, facts_.partition(tensor));
  }
  bool is_linear(const Op& op) const;
  std::vector<OpId> users_of(TensorId tensor, const std::unordered_map<TensorId, OpId>& user) const;

  const PartitionAnalysis& facts_;
  const Ir& ir_;
  PartitionId declared_;
};

/// Breadth first: of several gradients, the one nearest to the value is the one that a user mends.
std::optional<MissingSum> MissingSums::behind(TensorId value) const {
  std::unordered_map<TensorId, OpId> user{{value, kNone}};  // op that takes a tensor on the way to the value
  std::vector<TensorId> found{value};
  for (std::size_t next = 0; next < found.size(); ++next) {
    const TensorId tensor = found[next];
    const OpId producer = ir_.tensor(tensor).uses.producer;
    if (producer == kNone) continue;
    const Op& op = ir_.op(producer);
    if (op.origin.derivative) return at(op, tensor, users_of(tensor, user));
    if (op.def->program.control != Control::kNone) return std::nullopt;
    for (const TensorId input : op.inputs) {
      if (input != kNone && !user.contains(input) && differs(input)) {
        user.emplace(input, producer);
        found.push_back(input);
      }
    }
  }
  return std::nullopt;
}

/// Ops on the way from a tensor to the value, the last one first.
std::vector<OpId> MissingSums::users_of(TensorId tensor,
                                        const std::unordered_map<TensorId, OpId>& user) const {
  std::vector<OpId> users;
  for (OpId at = user.at(tensor); at != kNone; at = user.at(tensor)) {
    users.push_back(at);
    tensor = *std::ranges::find_if(ir_.op(at).outputs, [&](TensorId t) { return user.contains(t); });
  }
  std::ranges::reverse(users);
  return users;
}

MissingSum MissingSums::at(const Op& made, TensorId gradient, const std::vector<OpId>& users) const {
  MissingSum sum{.made = made.id, .gradient = gradient, .used = users.empty() ? OpId(kNone) : users.back()};
  for (auto user = users.rbegin(); user != users.rend() && sum.nonlinear == kNone; ++user) {
    if (!is_linear(ir_.op(*user))) sum.nonlinear = *user;
  }
  return sum;
}

/// True if the result is linear in the operands that differ. Graphs that an op runs are analysed alone.
bool MissingSums::is_linear(const Op& op) const {
  if (op.def->program.control != Control::kNone) return true;
  if (op.def->replicas.collective == Collective::kReduce) {
    const CollectiveOp how = op.get(kReduction);
    return how == CollectiveOp::kAdd || how == CollectiveOp::kMean;
  }
  const auto differing = std::ranges::count_if(op.inputs, [this](TensorId t) { return differs(t); });
  switch (op.def->numerics.linear) {
    case Linear::kNone:
      return op.def->is_linear();
    case Linear::kMove:
    case Linear::kSum:
    case Linear::kAll:
      return true;
    case Linear::kEach:
      return differing <= 1;
    case Linear::kFirst:
      return differing == 0 || (differing == 1 && differs(op.inputs[0]));
    case Linear::kChoice:
      return !differs(op.inputs[0]);
  }
  return false;
}

}  // namespace

std::optional<MissingSum> missing_sum(const PartitionAnalysis& facts, TensorId value, PartitionId declared) {
  return MissingSums(facts, declared).behind(value);
}

std::optional<MissingSum> missing_sum(Dataflow& flow, const Explanation& explanation, PartitionId declared) {
  std::vector<OpId> users;
  for (std::size_t i = 0; i < explanation.path.size(); ++i) {
    const ExplainStep step = step_of(flow, explanation, i);
    if (step.op == kNone) continue;
    const Op& op = flow.ir().op(step.op);
    if (step.kind == StepKind::kOp && op.origin.derivative)
      return MissingSums(flow.facts(), declared).at(op, step.tensor, users);
    users.push_back(step.op);
  }
  return std::nullopt;
}

}  // namespace popsr
