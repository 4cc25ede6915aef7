#include "popsr/runtime/plan/memory_timeline.h"

#include <algorithm>
#include <queue>

#include "popsr/base/threads/deep_stack.h"
#include "popsr/runtime/plan/liveness.h"

namespace popsr {
namespace {

/// The values of the arena, without those of no bytes, in the order in which they begin to live.
std::vector<ArenaValue> arena_values(const Plan& plan, const Liveness& liveness) {
  std::vector<ArenaValue> values;
  std::vector<const std::byte*> addresses;
  for (const BufferId id : plan.program().buffers.ids()) {
    const Buffer& buffer = plan.program().buffers[id];
    const Lifetime& life = liveness.lifetimes[id];
    const std::size_t bytes = arena_bytes(plan.blocks(), buffer);
    if (!is_in_arena(buffer) || !life.used() || bytes == 0) continue;
    values.push_back({buffer.tensor, 0, bytes, life.first, life.last});
    addresses.push_back(plan.memory().placements[id].base);
  }
  if (values.empty()) return values;
  const std::byte* const arena = *std::ranges::min_element(addresses);  // the first value is at its begin
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i].offset = static_cast<std::size_t>(addresses[i] - arena);
  }
  std::ranges::stable_sort(values, {}, &ArenaValue::first);
  return values;
}

MemoryTimeline timeline_of(const Plan& plan) {
  const Liveness liveness(plan.program());
  MemoryTimeline timeline{{}, arena_values(plan, liveness), plan.arena_bytes(), 0};
  timeline.temporaries = plan.memory().activations - plan.arena_bytes();
  const auto ends_before = [](const ArenaValue* a, const ArenaValue* b) { return a->last > b->last; };
  std::priority_queue<const ArenaValue*, std::vector<const ArenaValue*>, decltype(ends_before)> live(
      ends_before);
  const auto is_lower = [](const ArenaValue* a, const ArenaValue* b) {
    return a->offset + a->bytes < b->offset + b->bytes;
  };
  std::priority_queue<const ArenaValue*, std::vector<const ArenaValue*>, decltype(is_lower)> highest(
      is_lower);
  auto next = timeline.values.begin();
  std::size_t bytes = 0;
  for (std::size_t step = 0; step < liveness.steps.size(); ++step) {
    for (; next != timeline.values.end() && next->first == step; ++next) {
      live.push(&*next);
      highest.push(&*next);
      bytes += next->bytes;
    }
    for (; !live.empty() && live.top()->last < step; live.pop()) bytes -= live.top()->bytes;
    while (!highest.empty() && highest.top()->last < step) highest.pop();
    const Op* const op = liveness.steps[step]->op;
    const std::size_t extent = highest.empty() ? 0 : highest.top()->offset + highest.top()->bytes;
    timeline.steps.push_back({op == nullptr ? OpId(kNone) : op->id, bytes, extent});
  }
  return timeline;
}

}  // namespace

MemoryTimeline memory_timeline(const Plan& plan) {
  MemoryTimeline timeline;
  with_deep_stack([&] { timeline = timeline_of(plan); });
  return timeline;
}

}  // namespace popsr
