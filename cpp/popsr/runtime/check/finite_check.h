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

/// C-order index of the first of n elements that is infinite or NaN. All elements of other types are finite.
std::optional<std::int64_t> first_not_finite(const std::byte* data, DType dtype, std::int64_t n);

/// The floats of one instruction. Operands are read before it runs, since it may overwrite them. Replicas of
/// which it is proved that they compute the same are looked at once, with and without dedup.
class FiniteCheck {
 public:
  struct Found {
    Replica replica = 0;  ///< Smallest of this rank in `computed`'s block.
    std::size_t output = 0;
    std::int64_t element = 0;
  };

  /// Null for what only moves values, what loads them from the host, and what leaves memory undefined.
  static std::unique_ptr<FiniteCheck> of(const Ir& ir, const Plan& plan, const LoweredOp& op);

  void read_operands(ActiveReplicas active);
  /// After the instruction: the first by replica, output and element.
  std::optional<Found> find(ActiveReplicas active) const;

  BufferId output(std::size_t index) const { return outputs_[index].buffer; }
  PartitionId computed() const { return computed_; }

 private:
  struct Operand {
    BufferId buffer = kNone;
    DType dtype = DType::kFloat32;
    std::int64_t elements = 0;
    std::vector<const std::byte*> blocks = {};  ///< By replica, of those that this rank sees.
  };
  /// A block of `computed`.
  struct Unit {
    Replica replica = 0;  ///< Smallest.
    bool exempt = false;  ///< Some operand was not finite, also of a replica that it exchanges values with.
  };
  FiniteCheck() = default;
  static void add(const Ir& ir, const Plan& plan, const LoweredOp& op, BufferId id, std::vector<Operand>& to);

  std::vector<Operand> inputs_, outputs_;
  std::vector<Unit> units_;
  std::optional<ReplicaGrouping> groups_;  ///< Of replicas that exchange values.
  PartitionId computed_ = {};
};

/// Throws FloatingPointError when a result of the instruction is not finite although its operands were.
void check_finite(const PartitionAnalysis& facts, const Plan& plan, const Instruction& instruction,
                  const IdVector<PathId, std::uint64_t>& iterations, ActiveReplicas active);

}  // namespace popsr
