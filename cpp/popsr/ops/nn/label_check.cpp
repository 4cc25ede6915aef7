// check_labels: computes nothing, and tells the host of labels that no member of a group has a class for.
//
// The classes are shared out over the members of each group in order, as many to each; a member's labels are
// less by the number of classes on the members before it.
#include <algorithm>
#include <vector>

#include "popsr/base/error.h"
#include "popsr/exec/collective_kernel.h"
#include "popsr/exec/invalid_labels.h"
#include "popsr/ops/infer.h"
#include "popsr/ops/loops/blocks.h"
#include "popsr/ops/registry.h"

namespace popsr {
namespace {

constexpr std::size_t kChecked = 0, kIgnored = 1;
constexpr Attr<std::int64_t> kClasses{"classes"};

std::vector<OutputDef> infer_check(const InferContext& context) {
  if (context.has(kIgnored)) {
    require_one_element(context, kIgnored);
    require_equal_dtypes(context, kChecked, kIgnored);
  }
  return {};
}

/// Integers of an operand as each replica holds them.
struct Integers {
  std::vector<std::uint32_t> block;  ///< Block of each replica; empty without the operand.
  DType dtype = DType::kInt32;
  std::size_t input = 0;

  std::int64_t at(const CollectiveRun& run, Replica replica, std::int64_t i) const {
    const std::byte* const data = in_block(run, input, block[replica]);
    return read_integer(data + static_cast<std::size_t>(i) * size_of(dtype), dtype);
  }
};

Integers integers_of(const CollectiveSpec& spec, std::size_t input) {
  if (input >= spec.inputs.size() || !spec.inputs[input]) return {};
  const std::span<const std::uint32_t> labels = spec.in_labels[input];
  return {{labels.begin(), labels.end()}, spec.inputs[input]->dtype, input};
}

CollectiveKernel check(const CollectiveSpec& spec) {
  const ReplicaGrouping groups = group_of(spec.ir, spec.op);
  return [groups, labels = integers_of(spec, kChecked), ignored = integers_of(spec, kIgnored),
          classes = spec.op.get(kClasses),
          rows = num_elements(spec.inputs[kChecked]->shape)](const CollectiveRun& run) {
    if (run.invalid_labels == nullptr) return;
    const auto has_class = [&](Replica member, std::int64_t row) {
      const std::int64_t label = labels.at(run, member, row);
      if (label >= 0 && label < classes) return true;
      return !ignored.block.empty() && label == ignored.at(run, member, 0);
    };
    for (std::int64_t g = 0; g < groups.num_groups(); ++g) {
      const std::span<const Replica> members = groups.group(g);
      if (labels.block[members[0]] == kAbsentBlock || !run.active(members[0])) continue;
      for (std::int64_t row = 0; row < rows; ++row) {
        if (std::ranges::any_of(members, [&](Replica member) { return has_class(member, row); })) continue;
        run.invalid_labels->add(
            {members[0], row, labels.at(run, members[0], row), classes * groups.group_size()});
        break;
      }
    }
  };
}

}  // namespace

std::vector<OpDef> label_check_ops() {
  return {{.name = "check_labels",
           .inputs = {{"labels", kIntegers}, {.name = "ignored", .dtypes = kIntegers, .optional = true}},
           .attrs = {required(kClasses), optional(kGroup)},
           .infer = infer_check,
           .kernel = {.collective = check},
           .replicas = {.peers = Peers::kGroup},
           .numerics = {.labels = kChecked},
           .program = {.observable = true, .internal = true}}};
}

}  // namespace popsr
