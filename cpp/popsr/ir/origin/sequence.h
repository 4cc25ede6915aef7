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
  /// Part of the record that suffices to undo the recording of ops, if the list of unordered ones did not
  /// end.
  struct Tail {
    OpId last_ordered = kNone;
    std::uint32_t since = 0;
  };
  Tail tail() const { return {last_ordered_, static_cast<std::uint32_t>(since_.size())}; }
  void restore(Tail tail) noexcept;
  /// Unordered ops since the last ordered one.
  const std::vector<OpId>& since() const { return since_; }
  void restore_since(std::vector<OpId>&& since) noexcept { since_ = std::move(since); }

  /// Records the op; returns the ops that it must follow in that mode.
  std::vector<OpId> place(OpId op, SequenceMode mode);
  /// Clears the record. Called when a context of mode kPass is entered or the outermost one is left.
  void clear();
  /// Replaces the recorded ops for which `gone` holds by `op`.
  void replace(const std::function<bool(OpId)>& gone, OpId op);

 private:
  OpId last_ordered_ = kNone;
  std::vector<OpId> since_;  ///< Unordered ops since last_ordered_.
};

}  // namespace popsr
