// Earlier states of a program that it grew from: since then ops and tensors were added, and nothing that
// was there changed. Results found in such a state hold for the part of the program that it had.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace popsr {

/// Ranges of states by the numbers of Ir::epoch(), which ascend; numbers of undone states are not used
/// again. Only the last kRanges ranges are remembered: older states count as changed. Copies are cheap, and
/// nothing throws: transactions keep a copy for rolling back.
class Lineage {
 public:
  /// True if the program only grew since the state of that number, in which it had `ops` ops.
  bool grew_from(std::uint64_t state, std::size_t ops) const noexcept {
    for (std::size_t i = 0; i < size_; ++i) {
      const Range& range = ranges_[i];
      if (range.first <= state && state <= range.last) return ops <= range.ops;
    }
    return false;
  }

  /// Records that something existing changes; `newest` is the number of the newest state so far.
  void change(std::uint64_t newest) noexcept {
    size_ = 0;
    add(newest + 1);
  }

  /// Records a change of an op that states with no more than `op` ops do not have.
  void change_op(std::size_t op, std::uint64_t newest) noexcept {
    for (std::size_t i = 0; i < size_; ++i) ranges_[i].ops = ranges_[i].ops < op ? ranges_[i].ops : op;
    add(newest + 1);
  }

  /// Records that the program is in state `state` again, with the lineage `before`; `newest` is the number
  /// of the newest state so far.
  void restore(const Lineage& before, std::uint64_t state, std::uint64_t newest) noexcept {
    *this = before;
    if (newest == state) return;
    Range& last = ranges_[size_ - 1];
    if (last.first > state) {  // no state of it was reached
      last.first = newest + 1;
    } else {
      last.last = state;
      add(newest + 1);
    }
  }

 private:
  static constexpr std::size_t kRanges = 16;
  static constexpr std::uint64_t kOpen = std::numeric_limits<std::uint64_t>::max();
  struct Range {
    std::uint64_t first = 0, last = kOpen;
    /// Largest number of ops of a state in which none of its ops changed since.
    std::size_t ops = std::numeric_limits<std::size_t>::max();
  };

  /// Starts the range of the states from `first` on.
  void add(std::uint64_t first) noexcept {
    if (size_ > 0 && ranges_[size_ - 1].last == kOpen) {
      // Between two changes of one function there is at most one state, which nobody saw.
      if (ranges_[size_ - 1].first + 1 >= first && size_ > 1) {
        ranges_[size_ - 1] = {.first = first};
        return;
      }
      ranges_[size_ - 1].last = first - 1;
    }
    if (size_ == kRanges) {
      for (std::size_t i = 1; i < kRanges; ++i) ranges_[i - 1] = ranges_[i];
      --size_;
    }
    ranges_[size_++] = {.first = first};
  }

  std::array<Range, kRanges> ranges_{};
  std::size_t size_ = 1;  ///< Number of ranges, at least 1; the last range is open.
};

}  // namespace popsr
