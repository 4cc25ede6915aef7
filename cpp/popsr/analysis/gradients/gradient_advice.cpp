#include "popsr/analysis/gradients/gradient_advice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "popsr/analysis/gradients/gradient_sums.h"
#include "popsr/analysis/gradients/gradient_text.h"
#include "popsr/ir/op_def.h"

namespace popsr {
namespace {

using Holds = std::function<bool(const GradientShare&)>;

std::string text_of(const ReplicaGrouping& group) {
  if (group.is_const())
    return fmt::format("ir.replica_grouping(stride={}, group_size={})", group.stride(), group.group_size());
  return fmt::format("ir.replica_grouping_from_assignments([{}])", fmt::join(group.assignment(), ", "));
}

/// The collective that made the tensor by a sum over groups, if one did, and the share before it.
struct LastSum {
  const Op& op;
  GradientShare before;
};
std::optional<LastSum> last_sum(const GradientFlow& flow, TensorId tensor) {
  const OpId producer = tensor == kNone ? OpId(kNone) : flow.ir().tensor(tensor).uses.producer;
  if (producer == kNone) return std::nullopt;
  const Op& op = flow.ir().op(producer);
  if (op.def->replicas.collective != Collective::kReduce) return std::nullopt;
  const auto before = flow.share(op.inputs[0]);
  return before ? std::optional(LastSum{op, *before}) : std::nullopt;
}

/// At a fork: one more sum of the contribution, or another one, or one less.
std::string advice_at_fork(const GradientFlow& flow, TensorId forward, TensorId tensor,
                           const GradientShare& share, const Holds& holds) {
  constexpr std::string_view kSum = "replicated_all_reduce_identical_inputs";
  const std::string at = place_of(flow, tensor);
  const auto last = last_sum(flow, tensor);
  if (last && holds(last->before))
    return fmt::format("leave out the sum of gradients at {}", place(flow, last->op.origin.location));
  if (const auto sum = sum_that(flow.ir(), share, false, holds))
    return fmt::format("{}('{}', group={}) for {}", kSum, name_of(flow, forward), text_of(sum->group), at);
  if (!last) return "";
  const auto sum = sum_that(flow.ir(), last->before, false, holds);
  return sum ? fmt::format("{}('{}', group={}) in place of the sum at {}", kSum, name_of(flow, forward),
                           text_of(sum->group), at)
             : "";
}

std::string advice_at_fork(const GradientFlow& flow, const GradientFinding& finding) {
  PartitionTable& table = flow.ir().partitions();
  if (finding.tensor == kNone) return "";
  if (const auto partial = partial_contribution(flow, finding)) {
    const Holds fits = [&](const GradientShare& sum) {
      return sum_of(table, sum, partial->other).has_value();
    };
    return advice_at_fork(flow, finding.tensor, partial->tensor, partial->share, fits);
  }
  const auto again = flow.sum_again(finding.share);
  if (!again) return "";
  return fmt::format("leave out the sum of gradients at {}",
                     place(flow, flow.ir().op(*again).origin.location));
}

/// For a sum over other groups, or one too early or late. The sum that helps stays among the replicas that
/// share the forward value, and counts nothing twice.
std::string advice_for_sum(const GradientFlow& flow, const GradientFinding& finding, const Holds& holds) {
  if (finding.tensor == kNone) return "";
  const PartitionId whole = shared_by(flow, finding);
  const Holds fits = [&](const GradientShare& sum) {
    const bool inside = flow.ir().partitions().refines(sum.summed, whole);
    return inside && sum.factor == finding.share.factor && holds(sum);
  };
  return advice_at_fork(flow, finding.tensor, finding.first, finding.share, fits);
}

std::string advice_before_sum(const GradientFlow& flow, const GradientFinding& finding) {
  const ReplicaGrouping wanted = group_of(flow.ir(), flow.ir().op(finding.op));
  return advice_for_sum(flow, finding, [&](const GradientShare& sum) {
    return of_summed(flow.ir().partitions(), sum, wanted).has_value();
  });
}

/// The sum over groups among the ops that made a gradient, the last one first; kNone if there is none.
OpId sum_behind(const GradientFlow& flow, TensorId gradient) {
  for (TensorId at = gradient; at != kNone;) {
    const OpId producer = flow.ir().tensor(at).uses.producer;
    if (producer == kNone) return kNone;
    const Op& op = flow.ir().op(producer);
    if (op.def->replicas.collective == Collective::kReduce) return producer;
    const auto is_gradient = [&flow](TensorId t) { return t != kNone && flow.share(t).has_value(); };
    const auto next = std::ranges::find_if(op.inputs, is_gradient);
    at = next == op.inputs.end() ? TensorId(kNone) : *next;
  }
  return kNone;
}

std::string advice_for_groups(const GradientFlow& flow, const GradientFinding& finding) {
  const PartitionId whole = shared_by(flow, finding);
  const std::string at_fork = advice_for_sum(
      flow, finding, [&](const GradientShare& sum) { return is_whole(flow.ir().partitions(), sum, whole); });
  const OpId sum = at_fork.empty() ? sum_behind(flow, finding.first) : OpId(kNone);
  if (sum == kNone) return at_fork;
  return fmt::format(
      "add what makes its operand equal in its groups, as a sum of parts in the forward pass, before {}, or "
      "leave "
      "out the sum of gradients there",
      place(flow, flow.ir().op(sum).origin.location));
}

/// Of an update: one more sum, or another one in place of the last, or one less.
std::string advice_at_update(const GradientFlow& flow, const GradientFinding& finding) {
  PartitionTable& table = flow.ir().partitions();
  const PartitionId declared = flow.declared(finding.tensor);
  const auto usual = flow.usual_factor(finding.share);
  const Holds fits = [&](const GradientShare& sum) {
    const auto factor = factor_over(table, sum, declared);
    return factor && (!usual || *factor == *usual);
  };
  const std::string at = place(flow, flow.ir().op(finding.op).origin.location);
  const auto text = [&](TensorId tensor, const GroupSum& sum) {
    const std::string gradient = tensor == kNone ? "its gradient" : name_of(flow, tensor);
    return fmt::format("replicated_all_reduce('{}', '{}', {})", gradient, sum.mean ? "mean" : "add",
                       text_of(sum.group));
  };
  const std::string all = usual ? "" : ", or 'mean' for all variables of the step";
  const auto last = last_sum(flow, finding.first);
  if (last && fits(last->before))
    return fmt::format("leave out the one at {}", place(flow, last->op.origin.location));
  for (const bool mean : {false, true}) {
    if (!last || finding.fault == GradientFault::kUpdate) {
      const auto sum = sum_that(flow.ir(), finding.share, mean, fits);
      if (sum && (!mean || !last)) return fmt::format("{} before {}{}", text(finding.first, *sum), at, all);
    }
    if (!last) continue;
    if (const auto sum = sum_that(flow.ir(), last->before, mean, fits))
      return fmt::format("{} in place of the one at {}", text(last->op.inputs[0], *sum),
                         place(flow, last->op.origin.location));
  }
  return "";
}

}  // namespace

std::string advice(const GradientFlow& flow, const GradientFinding& finding) {
  switch (finding.fault) {
    case GradientFault::kFork:
      return advice_at_fork(flow, finding);
    case GradientFault::kNotWhole:
      return advice_before_sum(flow, finding);
    case GradientFault::kUpdate:
    case GradientFault::kFactor:
      return advice_at_update(flow, finding);
    case GradientFault::kTwice:
      return fmt::format("leave out the sum of gradients at {}",
                         place(flow, flow.ir().op(finding.op).origin.location));
    case GradientFault::kGroups:
      return advice_for_groups(flow, finding);
  }
  return "";
}

}  // namespace popsr
