#include "popsr/runtime/plan/liveness.h"

#include <algorithm>

#include "popsr/base/containers/slab.h"

namespace popsr {

std::size_t Liveness::begin_step(const LoweredOp& op) {
  steps.push_back(&op);
  return steps.size() - 1;
}

void Liveness::touch(BufferId id) {
  const std::size_t now = steps.size() - 1;
  lifetimes[id].first = std::min(lifetimes[id].first, now);
  lifetimes[id].last = std::max(lifetimes[id].last, now);
}

void Liveness::touch_operands(const LoweredOp& op) {
  for_each_operand(op, [this](BufferId id, bool) { touch(id); });
}

void Liveness::walk(const std::vector<LoweredOp>& ops) {
  for (const LoweredOp& op : ops) {
    const std::size_t begin = begin_step(op);
    touch_operands(op);
    if (op.is<lowered::Merged>() || op.is<lowered::Sliced>()) {
      for_each_body(op, [this](const std::vector<LoweredOp>& parts) {
        std::ranges::for_each(parts, [this](const LoweredOp& part) { touch_operands(part); });
      });
      continue;
    }
    for_each_body(op, [this](const std::vector<LoweredOp>& body) { walk(body); });
    for (const BufferId id : op.out) touch(id);  // a conditional's claims hold at its end
    const auto* const loop = op.as<lowered::Loop>();
    if (loop == nullptr) continue;
    extend_over_loop(loop->body, begin, begin_step(op));
  }
}

/// Buffers that the body uses but does not define live through every iteration.
void Liveness::extend_over_loop(const std::vector<LoweredOp>& body, std::size_t begin, std::size_t end) {
  for_each_op(body, [&](const LoweredOp& op) {
    for_each_operand(op, [&](BufferId id, bool) {
      if (lifetimes[id].first <= begin) lifetimes[id].last = std::max(lifetimes[id].last, end);
    });
  });
}

bool is_in_arena(const Buffer& buffer) { return buffer.kind == BufferKind::kActivation && !buffer.in_slices; }

std::size_t slab_bytes(const LocalBlocks& blocks, const Buffer& buffer) {
  return static_cast<std::size_t>((blocks.num_blocks(buffer.storage) + buffer.halo) *
                                  num_elements(buffer.type.shape)) *
         size_of(buffer.type.dtype);
}

std::size_t arena_bytes(const LocalBlocks& blocks, const Buffer& buffer) {
  return (slab_bytes(blocks, buffer) + Slab::kAlignment - 1) / Slab::kAlignment * Slab::kAlignment;
}

}  // namespace popsr
