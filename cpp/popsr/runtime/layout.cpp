#include "popsr/runtime/layout.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <map>
#include <new>

#include "popsr/base/no_memory.h"
#include "popsr/ir/op_def.h"

namespace popsr {
namespace {

constexpr std::size_t kAlignment = 64;

std::size_t aligned(std::size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

std::byte* allocate(std::size_t bytes) {
  void* const data = ::operator new (std::max(bytes, kAlignment), std::align_val_t{kAlignment}, std::nothrow);
  if (data == nullptr) throw NoMemory("session", bytes);
  return static_cast<std::byte*>(data);
}

/// Instructions (numbered in program text) between which a buffer holds a value.
struct Lifetime {
  std::size_t first = std::numeric_limits<std::size_t>::max();
  std::size_t last = 0;
  bool used() const { return first <= last; }
};

/// Calls visit(id) for each operand of the instruction itself; some are kNone.
template <class Visit>
void for_each_operand(const LoweredOp& op, const Visit& visit) {
  std::ranges::for_each(op.in, visit);
  std::ranges::for_each(op.out, visit);
  visit(op.lhs);
  visit(op.rhs);
  for (const FoldStep& step : op.steps) {
    std::ranges::for_each(step.in, visit);
    visit(step.lhs);
    visit(step.rhs);
  }
}

class Liveness {
 public:
  explicit Liveness(const LoweredProgram& program) : lifetimes(program.buffers.size()) { walk(program.ops); }

  std::vector<Lifetime> lifetimes;

 private:
  void touch(BufferId id) {
    if (id == kNone) return;
    lifetimes[id].first = std::min(lifetimes[id].first, clock_);
    lifetimes[id].last = std::max(lifetimes[id].last, clock_);
  }

  void touch_operands(const LoweredOp& op) {
    for_each_operand(op, [this](BufferId id) { touch(id); });
  }

  void walk(const std::vector<LoweredOp>& ops) {
    for (const LoweredOp& op : ops) {
      ++clock_;
      touch_operands(op);
      if (op.kind == LoweredOp::Kind::kMerged) {
        std::ranges::for_each(op.body, [this](const LoweredOp& part) { touch_operands(part); });
        continue;
      }
      const std::size_t begin = clock_;
      walk(op.body);
      walk(op.else_body);
      for (const BufferId id : op.out) touch(id);  // a conditional's claims hold at its end
      if (op.kind != LoweredOp::Kind::kLoop) continue;
      const std::size_t end = ++clock_;
      extend_over_loop(op.body, begin, end);
    }
  }

  /// What the body uses but does not define lives through every iteration.
  void extend_over_loop(const std::vector<LoweredOp>& body, std::size_t begin, std::size_t end) {
    for_each_op(body, [&](const LoweredOp& op) {
      for_each_operand(op, [&](BufferId id) {
        if (id != kNone && lifetimes[id].first <= begin)
          lifetimes[id].last = std::max(lifetimes[id].last, end);
      });
    });
  }

  std::size_t clock_ = 0;
};

/// First fit over the address ranges that are taken while the buffer lives.
class Arena {
 public:
  std::size_t add(const Lifetime& life, std::size_t bytes) {
    std::erase_if(live_, [&life](const Taken& taken) { return taken.last < life.first; });
    std::size_t offset = 0;
    auto at = live_.begin();
    for (; at != live_.end() && at->offset < offset + bytes; ++at)
      offset = std::max(offset, at->offset + at->bytes);
    const auto place = std::ranges::lower_bound(live_, offset, {}, &Taken::offset);
    live_.insert(place, {offset, bytes, life.last});
    size_ = std::max(size_, offset + bytes);
    return offset;
  }
  std::size_t size() const { return size_; }

 private:
  struct Taken {
    std::size_t offset, bytes, last;
  };
  std::vector<Taken> live_;  ///< Ascending offsets.
  std::size_t size_ = 0;
};

std::size_t slab_bytes(const Ir& ir, const Buffer& buffer) {
  return static_cast<std::size_t>(ir.partitions().num_blocks(buffer.storage) *
                                  num_elements(buffer.type.shape)) *
         size_of(buffer.type.dtype);
}

void place_activations(const Ir& ir, const LoweredProgram& program, Memory& memory) {
  const Liveness liveness(program);
  std::vector<BufferId> order;
  for (BufferId id = 0; id < program.buffers.size(); ++id) {
    if (program.buffers[id].kind == BufferKind::kActivation && liveness.lifetimes[id].used())
      order.push_back(id);
  }
  std::ranges::stable_sort(order, {}, [&liveness](BufferId id) { return liveness.lifetimes[id].first; });
  Arena arena;
  std::vector<std::size_t> offsets(program.buffers.size(), 0);
  for (const BufferId id : order) {
    offsets[id] = arena.add(liveness.lifetimes[id], aligned(slab_bytes(ir, program.buffers[id])));
  }
  memory.activations = arena.size();
  memory.slabs.emplace_back(arena.size());
  for (const BufferId id : order) memory.placements[id].base = memory.slabs.back().data() + offsets[id];
}

}  // namespace

Slab::Slab(std::size_t bytes) : size_(bytes), data_(allocate(bytes)) { std::memset(data_.get(), 0, bytes); }

void Slab::Free::operator()(std::byte* data) const { ::operator delete (data, std::align_val_t{kAlignment}); }

void choose_storage(const PartitionAnalysis& facts, LoweredProgram& program, bool dedup) {
  PartitionTable& table = facts.ir().partitions();
  for (Buffer& buffer : program.buffers) {
    buffer.storage = dedup ? table.top() : table.bottom();
    if (buffer.kind == BufferKind::kVariable) {
      buffer.storage = table.meet(buffer.storage, facts.variable(buffer.tensor));
    }
  }
  for_each_op(program.ops, [&](LoweredOp& op) {
    if (op.kind == LoweredOp::Kind::kConditional) return;  // its branches write
    PartitionId all = table.top();  // an op runs once per block of the meet of its outputs' facts
    for (const PartitionId fact : op.facts) all = table.meet(all, fact);
    for (const BufferId id : op.out) {
      program.buffers[id].storage = table.meet(program.buffers[id].storage, all);
    }
  });
}

Memory place(const Ir& ir, const LoweredProgram& program) {
  Memory memory;
  memory.placements.resize(program.buffers.size());
  for (BufferId id = 0; id < program.buffers.size(); ++id) {
    const Buffer& buffer = program.buffers[id];
    Placement& placement = memory.placements[id];
    placement.nbytes = bytes_of(buffer.type);
    if (buffer.kind == BufferKind::kActivation) continue;
    memory.slabs.emplace_back(slab_bytes(ir, buffer));
    placement.base = memory.slabs.back().data();
    (buffer.kind == BufferKind::kVariable ? memory.variables : memory.constants) +=
        memory.slabs.back().size();
    if (buffer.kind != BufferKind::kConstant || placement.nbytes == 0) continue;
    const HostBytes& data = *ir.tensor(buffer.tensor).data;
    for (std::int64_t b = 0; b < ir.partitions().num_blocks(buffer.storage); ++b) {
      std::memcpy(placement.base + static_cast<std::size_t>(b) * placement.nbytes, data.data(),
                  placement.nbytes);
    }
  }
  place_activations(ir, program, memory);
  return memory;
}

}  // namespace popsr
