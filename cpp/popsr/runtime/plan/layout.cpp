#include "popsr/runtime/plan/layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <map>
#include <new>
#include <queue>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include "popsr/base/error.h"
#include "popsr/base/no_memory.h"
#include "popsr/ir/op_def.h"
#include "popsr/runtime/plan/liveness.h"

namespace popsr {
namespace {

/// First fit: each buffer gets the lowest addresses that no other one has while it lives. In the order of
/// their lives, with a cost that hardly depends on how many live at once.
class Arena {
 public:
  std::size_t add(const Lifetime& life, std::size_t bytes) {
    for (; !live_.empty() && live_.top().last < life.first; live_.pop()) {
      release(live_.top().offset, live_.top().bytes);
    }
    if (bytes == 0) return 0;
    const std::size_t offset = take(bytes);
    live_.push({life.last, offset, bytes});
    return offset;
  }
  std::size_t size() const { return size_; }

 private:
  struct Taken {
    std::size_t last, offset, bytes;
    bool operator<(const Taken& other) const { return last > other.last; }
  };
  using Gaps = std::map<std::size_t, std::size_t>;  // bytes by offset

  static std::size_t class_of(std::size_t bytes) { return static_cast<std::size_t>(std::bit_width(bytes)); }

  void add_gap(std::size_t offset, std::size_t bytes) {
    gaps_.emplace(offset, bytes);
    by_class_[class_of(bytes)].insert(offset);
  }
  void drop_gap(Gaps::iterator gap) {
    by_class_[class_of(gap->second)].erase(gap->first);
    gaps_.erase(gap);
  }

  std::size_t take(std::size_t bytes) {
    // Every gap of larger classes is large enough; in its own class some are.
    std::size_t lowest = free_;
    for (std::size_t c = by_class_.size() - 1; c > class_of(bytes); --c) {
      if (!by_class_[c].empty()) lowest = std::min(lowest, *by_class_[c].begin());
    }
    for (const std::size_t offset : by_class_[class_of(bytes)]) {
      if (offset > lowest) break;
      if (gaps_.at(offset) < bytes) continue;
      lowest = offset;
      break;
    }
    if (lowest == free_) {
      free_ += bytes;
      size_ = std::max(size_, free_);
      return lowest;
    }
    const auto gap = gaps_.find(lowest);
    const std::size_t rest = gap->second - bytes;
    drop_gap(gap);
    if (rest > 0) add_gap(lowest + bytes, rest);
    return lowest;
  }

  /// Gaps that touch become one.
  void release(std::size_t offset, std::size_t bytes) {
    auto next = gaps_.lower_bound(offset);
    if (next != gaps_.end() && next->first == offset + bytes) {
      bytes += next->second;
      drop_gap(next++);
    }
    if (next != gaps_.begin()) {
      const auto before = std::prev(next);
      if (before->first + before->second == offset) {
        offset = before->first;
        bytes += before->second;
        drop_gap(before);
      }
    }
    if (offset + bytes == free_) {
      free_ = offset;
    } else {
      add_gap(offset, bytes);
    }
  }

  std::priority_queue<Taken> live_;
  Gaps gaps_;                                                                ///< Below free_.
  std::array<std::set<std::size_t>, 1 + 8 * sizeof(std::size_t)> by_class_;  ///< Offsets of gaps.
  std::size_t free_ = 0;  ///< From here on nothing is taken.
  std::size_t size_ = 0;
};

/// The slab of a buffer, or of several of which it is the largest.
Slab make_slab(const Ir& ir, const LocalBlocks& at, const Buffer& buffer, std::size_t bytes,
               std::string_view kind) {
  try {
    return Slab(bytes);
  } catch (const std::bad_alloc&) {
    const std::int64_t blocks = at.num_blocks(buffer.storage) + buffer.halo;
    throw NoMemory("session", bytes,
                   fmt::format(" for {} '{}' {}, stored {} time{}", kind, ir.tensor(buffer.tensor).name,
                               to_string(buffer.type), blocks, blocks == 1 ? "" : "s"));
  }
}

/// Smaller variables are copied: sharing is not worth a thought there.
constexpr std::size_t kLeastShared = 4096;

/// The program's initial values of a variable, if they are as its blocks would lie in memory.
std::shared_ptr<const HostBytes> initial_blocks(const Ir& ir, const LocalBlocks& blocks,
                                                const Buffer& buffer) {
  const Tensor& tensor = ir.tensor(buffer.tensor);
  const std::shared_ptr<const HostBytes>& data = tensor.state.data;
  if (!blocks.ranks().is_alone()) return nullptr;
  if (tensor.kind != TensorKind::kVariable || !data || data->may_change()) return nullptr;
  if (slab_bytes(blocks, buffer) < kLeastShared) return nullptr;
  if (reinterpret_cast<std::uintptr_t>(data->data()) % Slab::kAlignment != 0) return nullptr;
  PartitionTable& table = ir.partitions();
  const std::span<const std::uint32_t> rows = table.labels(tensor.state.grouping->partition(table));
  std::uint32_t block = 0;
  for (const Replica replica : table.representatives(buffer.storage)) {
    if (rows[replica] != block++) return nullptr;
  }
  return data;
}

IdVector<BufferId, bool> written_buffers(const LoweredProgram& program) {
  IdVector<BufferId, bool> written(program.buffers.size(), false);
  for_each_op(program.ops, [&written](const LoweredOp& op) {
    for_each_operand(op, [&written](BufferId id, bool is_written) {
      if (is_written) written[id] = true;
    });
  });
  return written;
}

void place_activations(const Ir& ir, const LocalBlocks& blocks, const LoweredProgram& program,
                       Memory& memory) {
  const Liveness liveness(program);
  std::vector<BufferId> order;
  for (const BufferId id : program.buffers.ids()) {
    const Buffer& buffer = program.buffers[id];
    if (is_in_arena(buffer) && liveness.lifetimes[id].used()) order.push_back(id);
  }
  std::ranges::stable_sort(order, {}, [&liveness](BufferId id) { return liveness.lifetimes[id].first; });
  Arena arena;
  IdVector<BufferId, std::size_t> offsets(program.buffers.size(), 0);
  for (const BufferId id : order) {
    offsets[id] = arena.add(liveness.lifetimes[id], arena_bytes(blocks, program.buffers[id]));
  }
  memory.activations = arena.size();
  if (order.empty()) return;
  const auto bytes = [&](BufferId id) { return slab_bytes(blocks, program.buffers[id]); };
  const BufferId largest = *std::ranges::max_element(order, {}, bytes);
  memory.slabs.push_back(
      make_slab(ir, blocks, program.buffers[largest], arena.size(), "temporaries, the largest of which is"));
  for (const BufferId id : order) memory.placements[id].base = memory.slabs.back().data() + offsets[id];
}

}  // namespace

void choose_storage(const PartitionAnalysis& facts, LoweredProgram& program, bool dedup) {
  PartitionTable& table = facts.ir().partitions();
  for (Buffer& buffer : program.buffers) {
    buffer.storage = dedup ? table.top() : table.bottom();
    if (buffer.kind == BufferKind::kVariable) {
      buffer.storage = table.meet(buffer.storage, facts.variable(buffer.tensor));
    }
  }
  for_each_op(program.ops, [&](LoweredOp& op) {
    if (op.is<lowered::Conditional>()) return;  // its branches write
    PartitionId all = table.top();              // an op runs once per block of the meet of its outputs' facts
    for (const PartitionId fact : op.facts) all = table.meet(all, fact);
    for (const BufferId id : op.out) {
      program.buffers[id].storage = table.meet(program.buffers[id].storage, all);
    }
  });
}

Memory lay_out(const Ir& ir, const LocalBlocks& blocks, const LoweredProgram& program) {
  Memory memory;
  memory.placements.resize(program.buffers.size());
  const IdVector<BufferId, bool> written = written_buffers(program);
  for (const BufferId id : program.buffers.ids()) {
    const Buffer& buffer = program.buffers[id];
    Placement& placement = memory.placements[id];
    placement.nbytes = bytes_of(buffer.type);
    if (buffer.kind == BufferKind::kActivation) continue;
    const bool is_variable = buffer.kind == BufferKind::kVariable;
    if (std::shared_ptr<const HostBytes> data;
        is_variable && !written[id] && (data = initial_blocks(ir, blocks, buffer))) {
      // No op writes it, and own_memory() comes before the host does.
      placement.base = const_cast<std::byte*>(data->data());
      placement.is_shared = true;
      memory.variables += slab_bytes(blocks, buffer);
      memory.shared.push_back(std::move(data));
      continue;
    }
    memory.slabs.push_back(
        make_slab(ir, blocks, buffer, slab_bytes(blocks, buffer), is_variable ? "variable" : "constant"));
    placement.base = memory.slabs.back().data();
    (is_variable ? memory.variables : memory.constants) += memory.slabs.back().size();
    if (buffer.kind != BufferKind::kConstant || placement.nbytes == 0) continue;
    const HostBytes& data = *ir.tensor(buffer.tensor).state.data;
    for (std::int64_t b = 0; b < blocks.num_blocks(buffer.storage); ++b) {
      std::memcpy(placement.base + static_cast<std::size_t>(b) * placement.nbytes, data.data(),
                  placement.nbytes);
    }
  }
  place_activations(ir, blocks, program, memory);
  return memory;
}

void own_memory(const Ir& ir, const LocalBlocks& blocks, const LoweredProgram& program, BufferId variable,
                Memory& memory) {
  Placement& placement = memory.placements[variable];
  POPSR_CHECK(placement.is_shared);
  const Buffer& buffer = program.buffers[variable];
  const Slab& slab =
      memory.slabs.emplace_back(make_slab(ir, blocks, buffer, slab_bytes(blocks, buffer), "variable"));
  std::memcpy(slab.data(), placement.base, slab.size());
  placement.base = slab.data();
  placement.is_shared = false;
}

}  // namespace popsr
