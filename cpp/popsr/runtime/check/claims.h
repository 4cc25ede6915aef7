// Dynamic oracle: compares proved claims with the values that a run without deduplication computed.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "popsr/analysis/partition_analysis.h"
#include "popsr/exec/host_io.h"
#include "popsr/runtime/plan/plan.h"
#include "popsr/runtime/ranks/rank_link.h"

namespace popsr {

/// C-order index of the first element in which two blocks differ. All NaNs of a dtype are one value; -0
/// differs from +0.
std::optional<std::int64_t> first_difference(const std::byte* a, const std::byte* b, const TensorType& type);

/// Selects a share of its queries, the same ones in every process: neither clocks nor seeds play a part.
/// Later runs of a session select other queries than earlier ones.
class Sampler {
 public:
  explicit Sampler(double share) : share_(share) {}
  bool next();

 private:
  double share_;
  std::uint64_t asked_ = 0;
};

/// Connection to the other ranks, which check the same claims at once; this rank compares its own replicas.
struct ClaimRanks {
  RankLink* link = nullptr;  ///< Link to the other ranks; null without them.
  /// Called before values are exchanged; throws if a rank found a difference.
  std::function<void()> agree = {};
};

/// Throws ReplicaError if a claim of the instruction does not hold among the active replicas. The error
/// names the op, the tensor, the call path and iterations, two replicas and their ranks, the element, both
/// values, and the derivation of the claim.
void check_claims(const PartitionAnalysis& facts, const Plan& plan, const Instruction& instruction,
                  const IdVector<PathId, std::uint64_t>& iterations, ActiveReplicas active,
                  const ClaimRanks& ranks);

}  // namespace popsr
