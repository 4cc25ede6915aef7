#include "popsr/runtime/session/rank_traffic.h"

#include <vector>

#include "popsr/base/threads/deep_stack.h"

namespace popsr {
namespace {

Traffic moved_by(const Instruction& instruction) {
  Traffic moved;
  if (const auto* const call = std::get_if<CollectiveCall>(&instruction.work)) {
    moved += call->exchange.moved;
    if (call->chain) moved += call->chain->moved;
  }
  if (const auto* const loop = std::get_if<Loop>(&instruction.work)) moved += loop->exchange.moved;
  if (const auto* const both = std::get_if<Conditional>(&instruction.work)) moved += both->exchange.moved;
  return moved;
}

void add(const std::vector<Instruction>& instructions, RankTraffic& total) {
  for (const Instruction& instruction : instructions) {
    if (const Traffic moved = moved_by(instruction); moved != Traffic()) total[instruction.op->id] += moved;
    for_each_body(instruction, [&](const auto& body) { add(body, total); });
  }
}

}  // namespace

void add_traffic(const Plan& plan, RankTraffic& total) {
  with_deep_stack([&] { add(plan.instructions(), total); });
}

}  // namespace popsr
