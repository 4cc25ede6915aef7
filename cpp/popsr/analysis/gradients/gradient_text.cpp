#include "popsr/analysis/gradients/gradient_text.h"

#include <fmt/format.h>

#include "popsr/base/error.h"
#include "popsr/ir/op_def.h"

namespace popsr {

const std::string& name_of(const GradientFlow& flow, TensorId tensor) {
  return flow.ir().tensor(tensor).name;
}

std::string place(const GradientFlow& flow, LocationId location) {
  const std::string text = flow.ir().locations().to_string(location);
  return text.empty() ? "?" : text;
}

std::string place_of(const GradientFlow& flow, TensorId tensor) {
  const OpId producer = flow.ir().tensor(tensor).uses.producer;
  return producer == kNone ? "?" : place(flow, flow.ir().op(producer).origin.location);
}

PartitionId shared_by(const GradientFlow& flow, const GradientFinding& finding) {
  return finding.tensor == kNone ? finding.share.whole : flow.facts().partition(finding.tensor);
}

std::optional<Contribution> partial_contribution(const GradientFlow& flow, const GradientFinding& finding) {
  PartitionTable& table = flow.ir().partitions();
  const PartitionId whole = shared_by(flow, finding);
  const bool first = is_whole(table, finding.share, whole), second = is_whole(table, finding.other, whole);
  if (first == second) return std::nullopt;
  if (first) return Contribution{finding.second, finding.other, finding.share};
  return Contribution{finding.first, finding.share, finding.other};
}

namespace {

// Longer lists of blocks are counted.
constexpr std::int64_t kMaxShownBlocks = 8;

std::string blocks(const GradientFlow& flow, PartitionId id) {
  const PartitionTable& table = flow.ir().partitions();
  if (id == table.top()) return "all replicas";
  if (table.num_blocks(id) > kMaxShownBlocks)
    return fmt::format("{} blocks of replicas", table.num_blocks(id));
  return table.to_string(id);
}

std::string inside(const GradientFlow& flow, PartitionId id) {
  return (id == flow.ir().partitions().top() ? "on " : "inside ") + blocks(flow, id);
}

/// The sum that a share is: "each replica's own part", "a sum over {0,2},{1,3}".
std::string sum_text(const GradientFlow& flow, const GradientShare& share) {
  if (share.summed == flow.ir().partitions().bottom()) return "each replica's own part";
  return "a sum over " + blocks(flow, share.summed);
}

std::string gradient_of(const GradientFlow& flow, const GradientFinding& finding) {
  if (finding.tensor == kNone) return "a gradient";
  return fmt::format("the gradient of '{}'", name_of(flow, finding.tensor));
}

std::string fork_text(const GradientFlow& flow, const GradientFinding& finding) {
  const auto pending = partial_contribution(flow, finding);
  const std::string first = sum_text(flow, finding.share), second = sum_text(flow, finding.other);
  if (!pending && first != second) {
    return fmt::format("{} adds '{}' of {}, {}, to '{}' of {}, {}: no later sum makes both right",
                       gradient_of(flow, finding), name_of(flow, finding.second),
                       place_of(flow, finding.second), second, name_of(flow, finding.first),
                       place_of(flow, finding.first), first);
  }
  if (!pending) {
    return fmt::format(
        "{} adds '{}' of {} to '{}' of {}, which count the same derivative differently often: one of them is "
        "averaged, or summed once more than the other",
        gradient_of(flow, finding), name_of(flow, finding.second), place_of(flow, finding.second),
        name_of(flow, finding.first), place_of(flow, finding.first));
  }
  const TensorId whole = pending->tensor == finding.first ? finding.second : finding.first;
  return fmt::format(
      "{} adds '{}' of {}, {}, to '{}' of {}, which is whole {}: no later sum makes both right",
      gradient_of(flow, finding), name_of(flow, pending->tensor), place_of(flow, pending->tensor),
      sum_text(flow, pending->share), name_of(flow, whole), place_of(flow, whole),
      inside(flow, shared_by(flow, finding)));
}

std::string update_text(const GradientFlow& flow, const GradientFinding& finding) {
  const PartitionId declared = flow.declared(finding.tensor);
  const bool partial_sum = flow.ir().partitions().refines(finding.share.summed, declared);
  return fmt::format("'{}' is declared equal {}, but is updated with {}{}", name_of(flow, finding.tensor),
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
                         flow.ir().op(finding.op).def->name, name_of(flow, finding.first),
                         sum_text(flow, finding.share));
    case GradientFault::kTwice:
      return fmt::format(
          "{} is summed over {}, but '{}' is that sum already: it counts more often than others",
          gradient_of(flow, finding),
          blocks(flow, group_of(flow.ir(), flow.ir().op(finding.op)).partition(flow.ir().partitions())),
          name_of(flow, finding.first));
    case GradientFault::kNotWhole:
      return fmt::format(
          "{} is {}, and what made '{}' takes it for the same on the replicas of its groups",
          gradient_of(flow, finding), sum_text(flow, finding.share),
          finding.tensor == kNone ? name_of(flow, finding.first) : name_of(flow, finding.tensor));
    case GradientFault::kUpdate:
      return update_text(flow, finding);
    case GradientFault::kFactor:
      return fmt::format("'{}' is updated with {} the gradient that other variables of the step get",
                         name_of(flow, finding.tensor),
                         ratio_text(finding.other.factor, finding.share.factor));
  }
  return "";
}

}  // namespace popsr
