#include "popsr/analysis/gradients/gradient_text.h"

#include <fmt/format.h>

#include <functional>

#include "popsr/base/error.h"
#include "popsr/ir/op_def.h"

namespace popsr {
namespace {

// More replicas have too many groupings to try them all.
constexpr std::int64_t kMaxTried = 64;
// Longer lists of blocks are counted.
constexpr std::int64_t kMaxBlocks = 8;

const std::string& name(const GradientFlow& flow, TensorId tensor) { return flow.ir().tensor(tensor).name; }

std::string blocks(const GradientFlow& flow, PartitionId id) {
  const PartitionTable& table = flow.ir().partitions();
  if (id == table.top()) return "all replicas";
  if (table.num_blocks(id) > kMaxBlocks) return fmt::format("{} blocks of replicas", table.num_blocks(id));
  return table.to_string(id);
}

std::string inside(const GradientFlow& flow, PartitionId id) {
  return (id == flow.ir().partitions().top() ? "on " : "inside ") + blocks(flow, id);
}

std::string place(const GradientFlow& flow, LocationId location) {
  const std::string text = flow.ir().locations().to_string(location);
  return text.empty() ? "?" : text;
}

/// Of the op that made the tensor: in gradient graphs, of its forward op.
std::string place_of(const GradientFlow& flow, TensorId tensor) {
  const OpId producer = flow.ir().tensor(tensor).uses.producer;
  return producer == kNone ? "?" : place(flow, flow.ir().op(producer).origin.location);
}

/// The smallest groups of constant stride after whose sum `holds` is true of the share.
std::optional<ReplicaGrouping> group_for(const GradientFlow& flow, const GradientShare& share,
                                         const std::function<bool(const GradientShare&)>& holds) {
  PartitionTable& table = flow.ir().partitions();
  const std::int64_t replicas = table.replicas();
  for (std::int64_t size = 2; size <= replicas && replicas <= kMaxTried; ++size) {
    for (std::int64_t stride = 1; stride * size <= replicas; ++stride) {
      if (replicas % (stride * size) != 0) continue;
      auto group = ReplicaGrouping::from_stride(replicas, stride, size);
      const auto sum = reduced(table, share, group, false);
      if (sum && holds(*sum)) return group;
    }
  }
  return std::nullopt;
}

std::string text_of(const ReplicaGrouping& group) {
  return fmt::format("ir.replica_grouping(stride={}, group_size={})", group.stride(), group.group_size());
}

/// The sum that a share is: "each replica's own part", "a sum over {0,2},{1,3}".
std::string sum_text(const GradientFlow& flow, const GradientShare& share) {
  if (share.summed == flow.ir().partitions().bottom()) return "each replica's own part";
  return "a sum over " + blocks(flow, share.summed);
}

/// The contribution of a fork that is a partial sum where the other one is whole: its tensor, and its share.
struct Contribution {
  TensorId tensor;
  const GradientShare& share;
  const GradientShare& other;
};

PartitionId shared_by(const GradientFlow& flow, const GradientFinding& finding) {
  return finding.tensor == kNone ? finding.share.whole : flow.facts().partition(finding.tensor);
}

std::optional<Contribution> partial(const GradientFlow& flow, const GradientFinding& finding) {
  PartitionTable& table = flow.ir().partitions();
  const PartitionId whole = shared_by(flow, finding);
  const bool first = is_whole(table, finding.share, whole), second = is_whole(table, finding.other, whole);
  if (first == second) return std::nullopt;
  if (first) return Contribution{finding.second, finding.other, finding.share};
  return Contribution{finding.first, finding.share, finding.other};
}

std::string gradient_of(const GradientFlow& flow, const GradientFinding& finding) {
  if (finding.tensor == kNone) return "a gradient";
  return fmt::format("the gradient of '{}'", name(flow, finding.tensor));
}

std::string fork_text(const GradientFlow& flow, const GradientFinding& finding) {
  const auto pending = partial(flow, finding);
  if (!pending) {
    return fmt::format(
        "{} adds '{}' of {} to '{}' of {}, which count the same derivative differently often: one of them is "
        "averaged, or summed once more than the other",
        gradient_of(flow, finding), name(flow, finding.second), place_of(flow, finding.second),
        name(flow, finding.first), place_of(flow, finding.first));
  }
  const TensorId whole = pending->tensor == finding.first ? finding.second : finding.first;
  return fmt::format(
      "{} adds '{}' of {}, {}, to '{}' of {}, which is whole {}: no later sum makes both right",
      gradient_of(flow, finding), name(flow, pending->tensor), place_of(flow, pending->tensor),
      sum_text(flow, pending->share), name(flow, whole), place_of(flow, whole),
      inside(flow, shared_by(flow, finding)));
}

std::string update_text(const GradientFlow& flow, const GradientFinding& finding) {
  const PartitionId declared = flow.declared(finding.tensor);
  const bool partial_sum = flow.ir().partitions().refines(finding.share.summed, declared);
  return fmt::format("'{}' is declared equal {}, but is updated with {}{}", name(flow, finding.tensor),
                     inside(flow, declared), sum_text(flow, finding.share),
                     partial_sum ? " of its gradient: the rest of the sum is missing"
                                 : ", so with gradients of other weights too");
}

std::string ratio_text(const Ratio& usual, const Ratio& factor) {
  const Ratio k = factor * Ratio{usual.denominator, usual.numerator};
  return k.denominator == 1 ? fmt::format("{} times", k.numerator)
                            : fmt::format("{}/{} of", k.numerator, k.denominator);
}

}  // namespace

std::string describe(const GradientFlow& flow, const GradientFinding& finding) {
  switch (finding.fault) {
    case GradientFault::kFork:
      return fork_text(flow, finding);
    case GradientFault::kGroups:
      return fmt::format("{} takes '{}', {} of gradients, of which forward values differ there",
                         flow.ir().op(finding.op).def->name, name(flow, finding.first),
                         sum_text(flow, finding.share));
    case GradientFault::kNotWhole:
      return fmt::format("{} is {}, and what made '{}' takes it for the same on the replicas of its groups",
                         gradient_of(flow, finding), sum_text(flow, finding.share),
                         finding.tensor == kNone ? name(flow, finding.first) : name(flow, finding.tensor));
    case GradientFault::kUpdate:
      return update_text(flow, finding);
    case GradientFault::kFactor:
      return fmt::format("'{}' is updated with {} the gradient that other variables of the step get",
                         name(flow, finding.tensor), ratio_text(finding.other.factor, finding.share.factor));
  }
  return "";
}

std::string advice(const GradientFlow& flow, const GradientFinding& finding) {
  PartitionTable& table = flow.ir().partitions();
  const std::string at = place(flow, flow.ir().op(finding.op).origin.location);
  switch (finding.fault) {
    case GradientFault::kFork: {
      const auto pending = partial(flow, finding);
      if (!pending || finding.tensor == kNone) return "";
      const auto fits = [&](const GradientShare& sum) {
        return sum_of(table, sum, pending->other).has_value();
      };
      const auto group = group_for(flow, pending->share, fits);
      if (!group) return "";
      return fmt::format("replicated_all_reduce_identical_inputs('{}', group={}) for {}",
                         name(flow, finding.tensor), text_of(*group), place_of(flow, pending->tensor));
    }
    case GradientFault::kNotWhole: {
      const ReplicaGrouping wanted = group_of(flow.ir(), flow.ir().op(finding.op));
      const auto fits = [&](const GradientShare& sum) { return of_summed(table, sum, wanted).has_value(); };
      const auto group = group_for(flow, finding.share, fits);
      if (!group || finding.tensor == kNone) return "";
      return fmt::format("replicated_all_reduce_identical_inputs('{}', group={}) before what uses it",
                         name(flow, finding.tensor), text_of(*group));
    }
    case GradientFault::kUpdate: {
      const PartitionId declared = flow.declared(finding.tensor);
      const auto usual = flow.usual_factor(finding.share);
      const auto fits = [&](const GradientShare& sum) { return is_whole(table, sum, declared); };
      const auto group = group_for(flow, finding.share, fits);
      if (!group) return "";
      const auto sum = reduced(table, finding.share, *group, false);
      const auto factor = factor_over(table, *sum, declared);
      const bool mean = usual && *usual == *factor * Ratio{1, group->group_size()};
      const std::string gradient = finding.first == kNone ? "its gradient" : name(flow, finding.first);
      return fmt::format("replicated_all_reduce('{}', '{}', {}) before {}{}", gradient, mean ? "mean" : "add",
                         text_of(*group), at, usual ? "" : ", or 'mean' for all variables of the step");
    }
    case GradientFault::kFactor:
      return "use 'add' for all of them, or 'mean', each once";
    case GradientFault::kGroups:
      return "sum after what the replicas do alone, over the groups that share the forward value";
  }
  return "";
}

}  // namespace popsr
