// L10 and L11: gradients that are sums over other replicas than share the forward value.
#include <fmt/format.h>

#include "popsr/analysis/gradients/gradient_advice.h"
#include "popsr/analysis/gradients/gradient_text.h"
#include "popsr/analysis/lint/lints.h"

namespace popsr {
namespace {

bool is_of_update(const GradientFinding& finding) {
  return finding.fault == GradientFault::kUpdate || finding.fault == GradientFault::kFactor;
}

Lint lint_of(const GradientFlow& flow, const GradientFinding& finding) {
  const Op& op = flow.ir().op(finding.op);
  const TensorId tensor = finding.tensor == kNone ? finding.first : finding.tensor;
  const std::string help = advice(flow, finding);
  const PartitionTable& table = flow.ir().partitions();
  return {.code = is_of_update(finding) ? 11 : 10,
          .op = finding.op,
          .tensor = tensor,
          .location = op.origin.location,
          .cost = table.replicas() - table.num_blocks(shared_by(flow, finding)),
          .unit = "replicas",
          .text = describe(flow, finding) + (help.empty() ? "" : "; " + help)};
}

}  // namespace

void lint_gradients(Explainer& explainer, std::vector<Lint>& lints) {
  const GradientFlow& flow = explainer.gradients();
  for (const GradientFinding& finding : flow.findings()) lints.push_back(lint_of(flow, finding));
}

}  // namespace popsr
