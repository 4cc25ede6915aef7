#include "popsr/analysis/gradients/gradient_advice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "popsr/analysis/gradients/gradient_sums.h"
#include "popsr/analysis/gradients/gradient_text.h"
#include "popsr/ir/calls/called_graphs.h"
#include "popsr/ir/gradient_graph.h"
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

TensorId forward_of(const GradientGraph& made, TensorId gradient) {
  const auto it = made.of.find(gradient);
  return it == made.of.end() ? TensorId(kNone) : it->second;
}

/// The first gradient behind a partial sum that is a partial sum itself: one sum there serves all that was
/// made of it. kNone unless its forward value was computed.
TensorId first_partial(const GradientFlow& flow, TensorId gradient) {
  const Ir& ir = flow.ir();
  TensorId first = kNone, forward = kNone;
  for (TensorId at = gradient; at != kNone;) {
    const OpId producer = ir.tensor(at).uses.producer;
    if (producer == kNone || !flow.pending(at)) break;
    const Op& op = ir.op(producer);
    if (op.def->program.control == Control::kCall) {
      const auto output = std::ranges::find(op.outputs, at) - op.outputs.begin();
      at = ir.graph(called_graphs(ir, op)[0].graph).outputs[static_cast<std::size_t>(output)];
      continue;
    }
    const GradientGraph* const made = ir.gradient_graph(op.graph);
    const auto of = made == nullptr ? TensorId(kNone) : forward_of(*made, at);
    if (of != kNone && of != forward) {  // contributions to one gradient come before their sum
      first = at;
      forward = of;
    }
    const auto is_partial = [&flow](TensorId t) { return t != kNone && flow.pending(t).has_value(); };
    const auto next = std::ranges::find_if(op.inputs, is_partial);
    at = next == op.inputs.end() ? TensorId(kNone) : *next;
  }
  return first == kNone || ir.tensor(forward).uses.producer == kNone ? TensorId(kNone) : first;
}

/// One sum where a partial sum begins, if that mends the finding and as many others.
std::string advice_at_first_partial(const GradientFlow& flow, const GradientFinding& finding,
                                    TensorId gradient, std::size_t others) {
  const TensorId first = first_partial(flow, gradient);
  const auto share = first == kNone ? std::nullopt : flow.share(first);
  if (!share) return "";
  const TensorId forward = forward_of(*flow.ir().gradient_graph(flow.ir().tensor(first).graph), first);
  const PartitionId whole = flow.facts().partition(forward);
  const auto sum = find_sum(flow.ir(), *share, false, [&](const GradientShare& after) {
    return is_whole(flow.ir().partitions(), after, whole) && after.factor == share->factor;
  });
  if (!sum || !flow.fixes({first, sum->group}, finding, others)) return "";
  return fmt::format("replicated_all_reduce_identical_inputs('{}', group={}) after {}",
                     name_of(flow, forward), text_of(sum->group), place_of(flow, forward));
}

/// At a fork: one more sum of the contribution, or another one, or one less.
std::string advice_at_fork(const GradientFlow& flow, TensorId forward, TensorId tensor,
                           const GradientShare& share, const Holds& holds) {
  constexpr std::string_view kSum = "replicated_all_reduce_identical_inputs";
  const std::string at = place_of(flow, tensor);
  const auto last = last_sum(flow, tensor);
  if (last && holds(last->before))
    return fmt::format("leave out the sum of gradients at {}", place(flow, last->op.origin.location));
  if (const auto sum = find_sum(flow.ir(), share, false, holds))
    return fmt::format("{}('{}', group={}) for {}", kSum, name_of(flow, forward), text_of(sum->group), at);
  if (!last) return "";
  const auto sum = find_sum(flow.ir(), last->before, false, holds);
  return sum ? fmt::format("{}('{}', group={}) in place of the sum at {}", kSum, name_of(flow, forward),
                           text_of(sum->group), at)
             : "";
}

std::string advice_at_fork(const GradientFlow& flow, const GradientFinding& finding) {
  PartitionTable& table = flow.ir().partitions();
  if (finding.tensor == kNone) return "";
  if (const auto partial = partial_contribution(flow, finding)) {
    const std::string once = advice_at_first_partial(flow, finding, partial->tensor, 1);
    if (!once.empty()) return once;
    const Holds fits = [&](const GradientShare& sum) {
      return sum_of(table, sum, partial->other).has_value();
    };
    return advice_at_fork(flow, finding.tensor, partial->tensor, partial->share, fits);
  }
  for (const TensorId contribution : {finding.first, finding.second}) {
    const std::string once = advice_at_first_partial(flow, finding, contribution, 0);
    if (!once.empty()) return once;
  }
  const auto again = flow.repeated_sum(finding.share);
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

/// Advice for an update: one more sum, another one instead of the last, or one less.
std::string advice_at_update(const GradientFlow& flow, const GradientFinding& finding) {
  if (finding.fault == GradientFault::kUpdate) {
    const std::string once = advice_at_first_partial(flow, finding, finding.first, 1);
    if (!once.empty()) return once;
  }
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
      const auto sum = find_sum(flow.ir(), finding.share, mean, fits);
      if (sum && (!mean || !last)) return fmt::format("{} before {}{}", text(finding.first, *sum), at, all);
    }
    if (!last) continue;
    if (const auto sum = find_sum(flow.ir(), last->before, mean, fits))
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
