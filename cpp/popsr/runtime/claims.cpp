#include "popsr/runtime/claims.h"

#include <fmt/format.h>

#include <cstring>
#include <optional>

#include "popsr/base/error.h"
#include "popsr/ir/op_def.h"

namespace popsr {
namespace {

std::uint64_t bits_of(const std::byte* data, std::size_t size) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, data, size);
  return bits;
}

/// NaN by its bits: exponent all ones, fraction not zero.
bool is_nan(std::uint64_t bits, DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
      return (bits & 0x7fff) > 0x7c00;
    case DType::kBFloat16:
      return (bits & 0x7fff) > 0x7f80;
    case DType::kFloat32:
      return (bits & 0x7fffffff) > 0x7f800000;
    case DType::kFloat64:
      return (bits & 0x7fffffffffffffff) > 0x7ff0000000000000;
    default:
      return false;
  }
}

/// " in iteration 3, 0" for ops inside loops, outermost first.
std::string iteration_text(const Plan& plan, PathId path, const std::vector<std::uint64_t>& iterations) {
  std::string text;
  for (PathId at = path; at != 0; at = plan.program().paths[at].parent) {
    if (plan.program().paths[at].kind != PathNode::Kind::kIteration) continue;
    text = fmt::format("{}{}{}", iterations[at], text.empty() ? "" : ", ", text);
  }
  return text.empty() ? text : " in iteration " + text;
}

}  // namespace

std::optional<std::int64_t> first_difference(const std::byte* a, const std::byte* b, const TensorType& type) {
  const std::size_t size = size_of(type.dtype);
  const std::int64_t n = num_elements(type.shape);
  if (std::memcmp(a, b, static_cast<std::size_t>(n) * size) == 0) return std::nullopt;
  for (std::int64_t i = 0; i < n; ++i) {
    const std::size_t at = static_cast<std::size_t>(i) * size;
    const std::uint64_t x = bits_of(a + at, size), y = bits_of(b + at, size);
    if (x != y && !(is_nan(x, type.dtype) && is_nan(y, type.dtype))) return i;
  }
  return std::nullopt;
}

void check_claims(const Ir& ir, const Plan& plan, const Instruction& instruction,
                  const std::vector<std::uint64_t>& iterations, ActiveReplicas active) {
  PartitionTable& table = ir.partitions();
  for (const Claim& claim : instruction.claims) {
    const Buffer& buffer = plan.program().buffers[claim.buffer];
    std::vector<Replica> firsts(static_cast<std::size_t>(table.num_blocks(claim.fact)), kNone);
    for (Replica r = 0; r < static_cast<Replica>(table.replicas()); ++r) {
      if (!active(r)) continue;
      Replica& first = firsts[table.labels(claim.fact)[r]];
      if (first == kNone) first = r;
      if (first == r) continue;
      const auto element =
          first_difference(plan.block(claim.buffer, first), plan.block(claim.buffer, r), buffer.type);
      if (!element) continue;
      const std::size_t size = size_of(buffer.type.dtype);
      const std::size_t at = static_cast<std::size_t>(*element) * size;
      const std::string location = instruction.op ? ir.locations().to_string(instruction.op->location) : "";
      raise<ReplicaError>(
          "check: '{}' differs between replicas {} and {} after {}{}{}{}, got bits {:#x} and {:#x} at "
          "element {}, "
          "expected equal values in {}",
          ir.tensor(buffer.tensor).name, first, r, instruction.op ? instruction.op->def->name : "a copy",
          location.empty() ? "" : " at ", location, iteration_text(plan, instruction.path, iterations),
          bits_of(plan.block(claim.buffer, first) + at, size),
          bits_of(plan.block(claim.buffer, r) + at, size), *element, table.to_string(claim.fact));
    }
  }
}

}  // namespace popsr
