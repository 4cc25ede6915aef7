#include "popsr/runtime/check/claims.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <utility>

#include "popsr/analysis/explain/explanation.h"
#include "popsr/base/digest.h"
#include "popsr/base/error.h"
#include "popsr/exec/host_io.h"
#include "popsr/ir/op_def.h"
#include "popsr/runtime/check/call_path.h"
#include "popsr/runtime/check/element_bits.h"
#include "popsr/runtime/ranks/all_blocks.h"

namespace popsr {
namespace {

/// The derivation of the claim about output `output` of an op; copies keep their value. A conditional's
/// outputs are followed by the tensors that its branches write.
std::string derivation_of(Dataflow& flow, FrameId frame, const Instruction& instruction, std::size_t output) {
  if (instruction.op == nullptr || instruction.op->def->memory.view) return "a copy equals what it copies";
  const Op& op = *instruction.op;
  const std::vector<TensorId> outputs = all_outputs(flow.ir(), op);
  const TensorId tensor =
      output < outputs.size()
          ? outputs[output]
          : facts_of(flow.ir(), flow.context(frame), op).written[output - outputs.size()].first;
  return derivation(flow, flow.before(frame, tensor, op.schedule.position + 1));
}

/// The owners of two replicas, where there are several ranks.
std::string ranks_text(const RankMap& ranks, Replica r, Replica s) {
  if (ranks.ranks == 1) return "";
  if (ranks.owner(r) == ranks.owner(s)) return fmt::format(" of rank {}", ranks.owner(r));
  return fmt::format(" of ranks {} and {}", ranks.owner(r), ranks.owner(s));
}

[[noreturn]] void raise_difference(const PartitionAnalysis& facts, const Plan& plan,
                                   const Instruction& instruction, const Claim& claim,
                                   const IdVector<PathId, std::uint64_t>& iterations, const AllBlocks& blocks,
                                   Replica r, Replica s, std::int64_t element) {
  const Ir& ir = facts.ir();
  const Buffer& buffer = plan.program().buffers[claim.buffer];
  const std::size_t size = size_of(buffer.type.dtype);
  const std::size_t at = static_cast<std::size_t>(element) * size;
  const std::string location =
      instruction.op ? ir.locations().to_string(instruction.op->origin.location) : "";
  Dataflow flow(facts);
  const auto [frame, place] = place_of(flow, plan, instruction.path, iterations);
  raise<ReplicaError>(
      "check: '{}' differs between replicas {} and {}{} after {}{}{}{}, got bits {:#x} and {:#x} at element "
      "{}, expected equal values in {}, derived from {}",
      ir.tensor(buffer.tensor).name, r, s, ranks_text(plan.blocks().ranks(), r, s),
      instruction.op ? instruction.op->def->name : "a copy", location.empty() ? "" : " at ", location, place,
      bits_of(blocks.block(r) + at, size), bits_of(blocks.block(s) + at, size), element,
      ir.partitions().to_string(claim.fact), derivation_of(flow, frame, instruction, claim.output));
}

/// The first active replica of each active replica's block; kNone for others.
std::vector<Replica> first_members(const PartitionTable& table, PartitionId fact, ActiveReplicas active) {
  std::vector<Replica> of_block(static_cast<std::size_t>(table.num_blocks(fact)), kNone);
  std::vector<Replica> firsts(static_cast<std::size_t>(table.replicas()), kNone);
  for (Replica r = 0; r < firsts.size(); ++r) {
    if (!active(r)) continue;
    Replica& first = of_block[table.labels(fact)[r]];
    if (first == kNone) first = r;
    firsts[r] = first;
  }
  return firsts;
}

/// The replicas that each rank compares its own with.
std::vector<SeenReplicas> seen_firsts(const std::vector<Replica>& firsts, const RankMap& ranks) {
  std::vector<SeenReplicas> seen(static_cast<std::size_t>(ranks.ranks), SeenReplicas(firsts.size(), 0));
  for (Replica r = 0; r < firsts.size(); ++r) {
    if (firsts[r] != kNone) seen[static_cast<std::size_t>(ranks.owner(r))][firsts[r]] = 1;
  }
  return seen;
}

}  // namespace

std::optional<std::int64_t> first_difference(const std::byte* a, const std::byte* b, const TensorType& type) {
  const std::size_t size = size_of(type.dtype);
  const std::int64_t n = num_elements(type.shape);
  if (n == 0 || std::memcmp(a, b, static_cast<std::size_t>(n) * size) == 0) return std::nullopt;
  for (std::int64_t i = 0; i < n; ++i) {
    const std::size_t at = static_cast<std::size_t>(i) * size;
    const std::uint64_t x = bits_of(a + at, size), y = bits_of(b + at, size);
    if (x != y && !(is_nan(x, type.dtype) && is_nan(y, type.dtype))) return i;
  }
  return std::nullopt;
}

bool Sampler::next() {
  if (share_ <= 0) return false;
  if (share_ >= 1) return true;
  // The top 53 bits as a number in [0, 1).
  const std::uint64_t scattered = scatter(++asked_ * 0x9E3779B97F4A7C15ULL);
  return std::ldexp(static_cast<double>(scattered >> 11), -53) < share_;
}

void check_claims(const PartitionAnalysis& facts, const Plan& plan, const Instruction& instruction,
                  const IdVector<PathId, std::uint64_t>& iterations, ActiveReplicas active,
                  const ClaimRanks& ranks) {
  const RankMap& own = plan.blocks().ranks();
  for (const Claim& claim : instruction.checks.claims) {
    const Buffer& buffer = plan.program().buffers[claim.buffer];
    const std::vector<Replica> firsts = first_members(facts.ir().partitions(), claim.fact, active);
    if (ranks.agree) ranks.agree();
    const AllBlocks blocks(facts.ir(), plan, claim.buffer, ranks.link, seen_firsts(firsts, own));
    for (Replica r = own.begin(); r < own.end(); ++r) {
      if (firsts[r] == kNone || firsts[r] == r) continue;
      const auto element = first_difference(blocks.block(firsts[r]), blocks.block(r), buffer.type);
      if (element)
        raise_difference(facts, plan, instruction, claim, iterations, blocks, firsts[r], r, *element);
    }
  }
}

}  // namespace popsr
