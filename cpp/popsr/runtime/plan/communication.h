// Messages of a run between ranks, computed for any number of ranks without starting any.
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

/// Messages of one rank that cannot move at the same time: together they take at least `messages` latencies
/// and the time of `bytes` on one link.
struct CriticalPath {
  std::uint64_t messages = 0, bytes = 0;
};

/// Messages of one execution of an op.
struct ExchangeTraffic {
  bool is_gathered = false;
  std::vector<Traffic> ranks = {};
  std::vector<CriticalPath> paths = {};  ///< Critical path by rank.
};

enum class ExchangeKind : std::uint8_t {
  kBlocks,  ///< Blocks of operands are sent to the ranks that need them.
  kGather,  ///< Each rank gathers, from all others, the blocks that some rank needs.
  kChain
};

/// An op for which values move between ranks.
struct PlannedExchange {
  const Op* op = nullptr;
  TensorId tensor = kNone;  ///< Tensor of the first operand that moves.
  /// Groups that exchange values; nullopt if rows of a stream or conditions decide.
  std::optional<ReplicaGrouping> groups = {};
  std::size_t value_bytes = 0;  ///< Bytes of one replica's value of that operand.
  ExchangeKind kind = ExchangeKind::kBlocks;
  std::int64_t executions = 0;  ///< Executions in one run.
  bool is_bound = false;        ///< True if `executions` is an upper bound: conditions decide.
  std::shared_ptr<const ExchangeTraffic> traffic = {};
};

/// Exchanges of a plan with these options on options.ranks.ranks ranks, in the order of the plan. Not safe
/// beside other uses of the program's Ir.
std::vector<PlannedExchange> planned_exchanges(const PartitionAnalysis& facts, const PlanOptions& options,
                                               std::size_t message_bytes);

}  // namespace popsr
