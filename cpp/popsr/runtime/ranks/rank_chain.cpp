#include "popsr/runtime/ranks/rank_chain.h"

#include <algorithm>
#include <cstring>

#include "popsr/exec/block_kernel.h"
#include "popsr/ir/op_def.h"
#include "popsr/runtime/lowering/rewrites.h"
#include "popsr/runtime/ranks/block_exchange.h"

namespace popsr {
namespace {

/// Fewer blocks than these are received at once in less time.
constexpr std::int64_t kFewBlocks = 3;

/// One pass of a group on this rank.
class Pass {
 public:
  Pass(const RankChain& chain, const ChainGroup& group, const kernels::NoiseKey* key, ThreadPool& pool)
      : chain_(chain),
        group_(group),
        steps_{chain.elements, chain.chunk, group.last},
        key_(key),
        pool_(pool) {}

  Traffic run(RankLink& link) {
    Traffic moved;
    for (std::int64_t step = 0; step < steps_.steps(); ++step) {
      moved += exchange(link, step);
      if (const std::int64_t chunk = step - group_.position; is_chunk(chunk)) add(chunk);
      if (const std::int64_t chunk = returned(step); group_.position < group_.last && is_chunk(chunk))
        copy_result(chunk);
    }
    return moved;
  }

 private:
  bool is_chunk(std::int64_t chunk) const { return 0 <= chunk && chunk < steps_.chunks(); }
  /// The chunk whose result this rank has at the end of a step.
  std::int64_t returned(std::int64_t step) const { return step - 2 * group_.last + group_.position; }
  std::byte* state(std::int64_t chunk) const {
    return chain_.states[static_cast<std::size_t>(chunk % 2)].data();
  }
  std::size_t offset(std::int64_t chunk) const {
    return static_cast<std::size_t>(steps_.begin(chunk)) * chain_.size;
  }
  std::size_t bytes(std::int64_t chunk, std::size_t size) const {
    return static_cast<std::size_t>(steps_.count(chunk)) * size;
  }

  Traffic exchange(RankLink& link, std::int64_t step) {
    outgoing_.clear();
    incoming_.clear();
    const std::int64_t chunk = step - group_.position, result = returned(step);
    const std::size_t message = chain_.kernel.message_size;
    if (group_.position > 0) {
      if (is_chunk(chunk)) incoming_.push_back({group_.before, state(chunk), bytes(chunk, message)});
      if (is_chunk(result - 1)) {
        outgoing_.push_back(
            {group_.before, group_.out[0] + offset(result - 1), bytes(result - 1, chain_.size)});
      }
    }
    if (group_.position < group_.last) {
      if (is_chunk(chunk - 1))
        outgoing_.push_back({group_.after, state(chunk - 1), bytes(chunk - 1, message)});
      if (is_chunk(result)) {
        incoming_.push_back({group_.after, group_.out[0] + offset(result), bytes(result, chain_.size)});
      }
    }
    return link.exchange(outgoing_, incoming_);
  }

  void add(std::int64_t chunk) {
    chain_.kernel.add({.members = group_.members,
                       .offset = offset(chunk),
                       .elements = steps_.count(chunk),
                       .state = state(chunk),
                       .continues = group_.position > 0,
                       .pool = pool_});
    if (group_.position < group_.last) return;
    chain_.kernel.finish({.state = state(chunk),
                          .out = group_.out[0] + offset(chunk),
                          .elements = steps_.count(chunk),
                          .key = key_,
                          .first = static_cast<std::uint64_t>(steps_.begin(chunk)),
                          .pool = pool_});
    copy_result(chunk);
  }

  /// Copies a result to the other blocks of this rank.
  void copy_result(std::int64_t chunk) const {
    for (std::size_t i = 1; i < group_.out.size(); ++i) {
      std::memcpy(group_.out[i] + offset(chunk), group_.out[0] + offset(chunk), bytes(chunk, chain_.size));
    }
  }

  const RankChain& chain_;
  const ChainGroup& group_;
  ChainSteps steps_;
  const kernels::NoiseKey* key_;
  ThreadPool& pool_;
  std::vector<OutgoingBytes> outgoing_;
  std::vector<IncomingBytes> incoming_;
};

}  // namespace

std::vector<std::int64_t> chain_ranks(std::span<const Replica> members, const RankMap& ranks) {
  std::vector<std::int64_t> owners;
  for (const Replica member : members) {
    const std::int64_t owner = ranks.owner(member);
    if (owners.empty() || owners.back() != owner) owners.push_back(owner);
  }
  return owners;
}

void RankChain::run(RankLink& link, ActiveReplicas active, const NoiseKeys& noise, ThreadPool& pool) {
  for (const ChainGroup& group : groups) {
    const kernels::NoiseKey* const key = noise.keys.empty() ? nullptr : &noise.keys[0][group.block];
    if (active(group.first)) moved += Pass(*this, group, key, pool).run(link);
  }
}

std::optional<ReductionChain> chain_of(const Ir& ir, const kernels::KernelTable& kernels,
                                       const LocalBlocks& blocks, const LoweredProgram& program,
                                       const LoweredOp& op, PartitionId exec, const ChainTuning& tuning) {
  if (blocks.ranks().is_alone() || !op.is<lowered::Plain>() || op.op->def->replicas.chain == nullptr) {
    return std::nullopt;
  }
  const ReplicaGrouping groups = group_of(ir, *op.op);
  const Buffer& in = program.buffers[op.in[0]];
  const std::size_t bytes = bytes_of(in.type);
  if (bytes == 0 || bytes < tuning.from_bytes || !crosses_ranks(groups, blocks.ranks())) return std::nullopt;
  // A group's result is the value of blocks of its own, and of one block where each block has its own noise.
  PartitionTable& table = ir.partitions();
  const PartitionId of_groups = groups.partition(table);
  if (!table.refines(exec, of_groups) || (program.seed_rules.of(ir, *op.op) && exec != of_groups))
    return std::nullopt;
  if (tuning.from_bytes > 0 && halo_of(ir, blocks, op, in.storage).max_received < kFewBlocks)
    return std::nullopt;
  return op.op->def->replicas.chain(eval_spec(ir, program, *op.op, kernels));
}

}  // namespace popsr
