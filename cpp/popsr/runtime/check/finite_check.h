// SessionOptions::check_floats: finds ops that make infinities or NaNs of finite operands.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "popsr/analysis/partition_analysis.h"
#include "popsr/exec/host_io.h"
#include "popsr/runtime/lowering/lowered_program.h"

namespace popsr {

class Plan;
struct Instruction;

/// C-order index of the first of n elements that is infinite or NaN. Elements of types that are not floats
/// are finite.
std::optional<std::int64_t> first_not_finite(const std::byte* data, DType dtype, std::int64_t n);

/// Checks the floats of one instruction. Operands are read before it runs, since it may overwrite them.
/// Replicas that are proved to compute the same are checked once, with and without dedup.
class FiniteCheck {
 public:
  struct Found {
    Replica replica = 0;  ///< Smallest replica of this rank in the block of `computed`.
    std::size_t output = 0;
    std::int64_t element = 0;
  };

  /// Makes the check; null for ops that only move values, load them from the host, or leave memory undefined.
  static std::unique_ptr<FiniteCheck> of(const Ir& ir, const Plan& plan, const LoweredOp& op);

  void read_operands(ActiveReplicas active);
  /// Finds, after the instruction, the first offending result by replica, output and element.
  std::optional<Found> find(ActiveReplicas active) const;

  BufferId output(std::size_t index) const { return outputs_[index].buffer; }
  PartitionId computed() const { return computed_; }

 private:
  struct Operand {
    BufferId buffer = kNone;
    DType dtype = DType::kFloat32;
    std::int64_t elements = 0;
    /// Address of each replica's block, for replicas that this rank sees.
    std::vector<const std::byte*> blocks = {};
  };
  /// A block of `computed`.
  struct Unit {
    Replica replica = 0;  ///< Smallest replica of the block.
    /// True if some operand was not finite, including operands of replicas that it exchanges values with.
    bool exempt = false;
  };
  FiniteCheck() = default;
  static void add(const Ir& ir, const Plan& plan, const LoweredOp& op, BufferId id, std::vector<Operand>& to);

  std::vector<Operand> inputs_, outputs_;
  std::vector<Unit> units_;
  std::optional<ReplicaGrouping> groups_;  ///< Groups of replicas that exchange values.
  PartitionId computed_ = {};
};

/// Throws FloatingPointError if a result of the instruction is not finite although its operands were.
void check_finite(const PartitionAnalysis& facts, const Plan& plan, const Instruction& instruction,
                  const IdVector<PathId, std::uint64_t>& iterations, ActiveReplicas active);

}  // namespace popsr
