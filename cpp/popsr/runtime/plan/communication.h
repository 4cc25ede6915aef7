// The messages of a run between ranks, for any number of them, without starting any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "popsr/analysis/partition_analysis.h"
#include "popsr/runtime/plan/plan_program.h"
#include "popsr/runtime/ranks/traffic.h"

namespace popsr {

/// Of one rank, what cannot move at the same time: it takes at least `messages` latencies, and the time of
/// `bytes` on one link.
struct CriticalPath {
  std::uint64_t messages = 0, bytes = 0;
};

/// Messages of one execution of an op.
struct ExchangeTraffic {
  bool is_gathered = false;
  std::vector<Traffic> ranks = {};
  std::vector<CriticalPath> paths = {};  ///< By rank.
};

enum class ExchangeKind : std::uint8_t {
  kBlocks,  ///< The blocks of operands are brought to those who see them.
  kGather,  ///< Each rank gives all others what some rank needs of it.
  kChain
};

/// An op for which values move between ranks.
struct PlannedExchange {
  const Op* op = nullptr;
  TensorId tensor = kNone;  ///< Of the first operand that moves.
  std::optional<ReplicaGrouping> groups =
      {};                       ///< That exchange values; none where rows or conditions decide.
  std::size_t value_bytes = 0;  ///< One replica's value of that operand.
  ExchangeKind kind = ExchangeKind::kBlocks;
  std::int64_t executions = 0;  ///< In one run.
  bool is_bound = false;        ///< At most so many: it depends on conditions.
  std::shared_ptr<const ExchangeTraffic> traffic = {};
};

/// The exchanges of a plan with these options on options.ranks.ranks ranks, in the order of the plan.
/// Not safe beside other uses of the program's Ir.
std::vector<PlannedExchange> planned_exchanges(const PartitionAnalysis& facts, const PlanOptions& options,
                                               std::size_t message_bytes);

}  // namespace popsr
