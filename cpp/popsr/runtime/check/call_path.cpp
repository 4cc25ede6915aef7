#include "popsr/runtime/check/call_path.h"

#include <fmt/format.h>

#include <algorithm>

#include "popsr/analysis/explain/explanation.h"
#include "popsr/ir/op_def.h"

namespace popsr {
namespace {

/// The op of that OpCall::index in the frame's graph.
const Op& call_of_index(const Dataflow& flow, FrameId frame, std::uint64_t index) {
  const std::vector<OpId>& ops = flow.graph(frame).ops;
  const auto is_call = [&](OpId id) {
    return flow.ir().op(id).def->program.control != Control::kNone && flow.ir().op(id).call.index == index;
  };
  return flow.ir().op(*std::ranges::find_if(ops, is_call));
}

}  // namespace

std::pair<FrameId, std::string> place_of(Dataflow& flow, const Plan& plan, PathId path,
                                         const IdVector<PathId, std::uint64_t>& iterations) {
  FrameId frame = {};
  const Op* conditional = nullptr;  // the next node says which branch it is
  std::string text;
  for (const PathId at : nodes_to(plan.program(), path)) {
    const PathNode& node = plan.program().paths[at];
    if (node.kind == PathNode::Kind::kIteration) {
      text += fmt::format(", iteration {}", iterations[at]);
      continue;
    }
    const Op& call = conditional ? *conditional : call_of_index(flow, frame, node.component);
    const bool is_branch = std::exchange(conditional, nullptr) != nullptr;
    if (call.def->program.control == Control::kConditional && !is_branch) {
      conditional = &call;
      continue;
    }
    frame =
        flow.enter(frame, call.schedule.position, is_branch ? static_cast<std::uint32_t>(node.component) : 0);
    text += fmt::format("{} {} of graph '{}' at {}", text.empty() ? " in" : ",", call.def->name,
                        flow.graph(frame).name, place_text(flow.ir(), call.origin.location));
  }
  return {frame, text};
}

}  // namespace popsr
