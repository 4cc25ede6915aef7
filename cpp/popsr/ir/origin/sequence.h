// Explicit order between ops, as PopXL's in_sequence makes it.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "popsr/ir/ids.h"

namespace popsr {

enum class SequenceMode : std::uint8_t {
  kPass,       ///< No constraint.
  kOrdered,    ///< in_sequence(True): after everything recorded, then the sole record.
  kUnordered,  ///< in_sequence(False): after the last ordered op only.
};

/// Record of one graph while its in_sequence contexts are open.
class SequenceState {
 public:
  /// Enough of the record to take back ops that were recorded since and ended no list of unordered ones.
  struct Tail {
    OpId last_ordered = kNone;
    std::uint32_t since = 0;
  };
  Tail tail() const { return {last_ordered_, static_cast<std::uint32_t>(since_.size())}; }
  void restore(Tail tail) noexcept;
  /// Unordered ops since the last ordered one.
  const std::vector<OpId>& since() const { return since_; }
  void restore_since(std::vector<OpId>&& since) noexcept { since_ = std::move(since); }

  /// Ops that the next op of that mode must follow; records the op.
  std::vector<OpId> place(OpId op, SequenceMode mode);
  /// Called when a context of mode kPass is entered or the outermost one is left.
  void clear();
  /// Ops of the record for which `gone` holds are now what `op` does.
  void replace(const std::function<bool(OpId)>& gone, OpId op);

 private:
  OpId last_ordered_ = kNone;
  std::vector<OpId> since_;  ///< Unordered ops since last_ordered_.
};

}  // namespace popsr
